"""Runs agents on the policy and records the token ids."""
