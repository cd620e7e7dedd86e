"""Contracts with one change, made from the source of a real stub."""

import inspect
import sys

import dsa_contracts.stages as contracts
from dsa_contracts import Ten, contract_of
from dsa_contracts.core import marks
from dsa_contracts.dsa import dims, states, typevars
from dsa_cp.tools.review.changes import Change
from dsa_cp.tools.review.contract_facts import ContractFacts, contract_facts, stage_facts
from dsa_cp.tools.review.diff import compare


def changed(stage: str, *edits: tuple[str, str]) -> ContractFacts:
    """The facts of all contracts, one stub edited; each text that is replaced stands in it once.

    An edit may use every name of the vocabulary, whether or not the stub imports it.
    """
    module = sys.modules[getattr(contracts, stage).__module__]
    source = inspect.getsource(module)
    for old, new in edits:
        assert source.count(old) == 1, (old, source.count(old))
        source = source.replace(old, new)
    namespace: dict[str, object] = {"Ten": Ten}
    for words in (marks, dims, states, typevars):
        namespace |= vars(words)
    namespace |= {"__name__": "edited", "__file__": module.__file__}
    exec(compile(source, str(module.__file__), "exec"), namespace)
    stub = namespace[stage]
    assert callable(stub)
    facts = contract_facts()
    return facts.model_copy(update={"stages": {**facts.stages, stage: stage_facts(contract_of(stub))}})


def changes_of(stage: str, *edits: tuple[str, str]) -> list[Change]:
    """What the diff says of one edited stub."""
    return compare(contract_facts(), changed(stage, *edits))


def lines_of(stage: str, *edits: tuple[str, str]) -> list[str]:
    return [change.line for change in changes_of(stage, *edits)]
