"""The command's entry: what fails while the package is imported is told in one line as well."""

import sys

from dsa_contracts.core.errors import ContractDefinitionError


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        from dsa_cp.cli import main as run
    except ContractDefinitionError as error:
        facts = "; ".join(f"{label} {text}" for label, text in error.facts)
        sys.stderr.write(f"dsa-cp: {error.headline}; {facts}\n")
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
