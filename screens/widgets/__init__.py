"""The parts that screens are put together from: each draws one thing, and reads no store."""
