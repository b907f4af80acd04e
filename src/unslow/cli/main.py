"""The `unslow` command."""


def main() -> None:
    """Run the command line."""
