"""Questions about paragraphs among many others: HotpotQA and SQuAD at any length that their data allow."""
