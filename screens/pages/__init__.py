"""What the tabs of a job say: each module makes texts from values, without a widget or a store."""
