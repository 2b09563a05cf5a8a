"""The very first start: where there is no model at all, choose one before the talk begins."""

from argparse import ArgumentParser, Namespace

from hermes.cli.context import CliContext


def choose_if_new(args: Namespace, context: CliContext) -> None:
    """Nothing happens in a home that has settings, or where some model can be reached.

    Raises `UsageError` when the person does not choose.
    """
    home = context.home()
    if args.model or args.provider or home.config.exists() or home.dotenv.exists():
        return
    from hermes.models.resolve import NothingConfigured, resolve
    from hermes.models.settings import ModelSettings
    from hermes.schema.errors import ConfigError

    try:
        resolve(ModelSettings(), context.env.get)
    except NothingConfigured:
        pass
    except ConfigError:
        return
    else:
        return
    if _is_somebody_here(context):
        return
    from hermes.cli.setting_up import set_up

    context.stderr.write("There is no model yet; this is asked once, and `hermes setup` later.\n")
    set_up(_nothing_said(), context)


def _is_somebody_here(context: CliContext) -> bool:
    import anyio

    from hermes.models.discover import find_local
    from hermes.models.embedded.target import found_here

    return bool(found_here(context.home().root) or anyio.run(find_local, context.env.get))


def _nothing_said() -> Namespace:
    """As `hermes setup` without a word more."""
    from hermes.cli.verbs.setup import add_arguments

    parser = ArgumentParser(add_help=False)
    add_arguments(parser)
    return parser.parse_args([])
