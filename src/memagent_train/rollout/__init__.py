"""Runs agents on the policy and keeps the token ids that they leave."""
