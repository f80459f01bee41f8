"""The collector ``auto``: metrics of programs that never heard of us, from what they print and the files they write."""
