"""What every backend offers: ``host`` and ``cluster`` are the abstract classes, with their values and errors.

Also what several backends share: prompts for passwords and codes, the setting ``on_demand``, which
container engine to use. Everything here may be imported from anywhere above. Imports ``workbench`` (errors,
config, agent) and no other package here.
"""
