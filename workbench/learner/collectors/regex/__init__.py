"""The collector ``regex_extractor``: metrics from lines of text by regular expressions."""
