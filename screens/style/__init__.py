"""How things look: themes and roles of colour, glyphs, states, values as text.

Everything in the screens imports from here. It imports no other package of the screens.
"""
