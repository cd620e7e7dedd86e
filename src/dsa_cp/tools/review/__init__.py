"""What a reviewer of a pull request reads: the contracts as a catalogue, a page, a diff, house rules and a probe.

Everything is made from the contract records (`facts`); there is no second description of a stage.
"""
