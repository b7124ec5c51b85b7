"""Every error that clawd raises on purpose, in one short tree.

Each leaf says what went wrong and what to do about it; the text of the exception is meant for a person. Nothing here
knows HTTP or exit statuses by heart: `exit_status` is read by the command line and the daemon, the OpenAI error shape
is made in `clawd.server.errors`.
"""


class ClawdError(Exception):
    """Base of all. `exit_status` is what a command that ends on this error returns to its shell."""

    exit_status = 1


class ConfigError(ClawdError):
    """A setting is unknown or out of its bounds: correct the TOML key, environment variable or flag that it names."""

    exit_status = 78  # EX_CONFIG


class MissingExtra(ClawdError):
    """A part of clawd that isn't installed with it is asked for: the text names the extra to install."""


class BenchFailed(ClawdError):
    """A figure couldn't be measured; the text says why. The throw-away daemon's folder is left for a look."""


class LabelsRefused(ClawdError):
    """A file of labelled replies can't be read or holds something else: the text says what and where."""

    exit_status = 65  # EX_DATAERR


class AlreadyRunning(ClawdError):
    """Another daemon holds this data folder: stop it, or give this one a folder of its own with CLAWD_HOME."""

    exit_status = 75  # EX_TEMPFAIL


class NotRunning(ClawdError):
    """No daemon answers for this data folder: start one with `clawd start`."""

    exit_status = 3


class PortTaken(ClawdError):
    """Another program listens on the address: choose another with --server.port, or stop that program."""

    exit_status = 76


class ProcessFailed(ClawdError):
    """A process of the daemon ended again and again before it was ready; the text holds the end of its log."""

    exit_status = 69  # EX_UNAVAILABLE


class ModelError(ClawdError):
    """The model file is missing, damaged or of a kind that can't be served: the text names the file and the remedy."""

    exit_status = 66  # EX_NOINPUT


class BindingError(ModelError):
    """llama.cpp's binding crashes or can't be loaded on this machine: rebuild it as the text says."""

    exit_status = 70  # EX_SOFTWARE


class TemplateError(ModelError):
    """The chat template can't be compiled, or fails on these messages."""


class AdapterError(ClawdError):
    """An adapter can't be used; nothing that serves has changed."""


class AdapterRejected(AdapterError):
    """An adapter file is damaged, incomplete, without effect or made for another base: the reason is in the text."""


class AdapterInUse(AdapterError):
    """An adapter or version can't be removed while somebody or something needs it: the text says what."""


class UnknownName(ClawdError):
    """No user, adapter, version or turn of that name: list what there is with `clawd status`."""


class NotAllowed(ClawdError):
    """The caller may not use this user's adapter, session or turn."""


class NameRefused(ClawdError):
    """A name holds what clawd doesn't take: at most 64 letters, digits, `-`, `_` and `.`, a letter or digit first."""


class ContextOverflow(ClawdError):
    """The prompt doesn't fit the context: shorten the conversation, or serve a model with a larger context."""

    def __init__(self, prompt_tokens: int, context_tokens: int) -> None:
        super().__init__(
            f"The prompt has {prompt_tokens} tokens and the model's context holds {context_tokens}: "
            "shorten the conversation, or serve a model with a larger context."
        )
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens


class SchemaRefused(ClawdError):
    """A JSON schema can't be enforced: leave out what the text names, or ask without the schema."""


class EngineStopped(ClawdError):
    """The engine has ended or failed; the daemon restarts it. Send the request again."""


class TookTooLong(ClawdError):
    """A request had no answer within its time limit (`server.max_wait_s`, `server.max_request_s`). Send it again."""


class StoreError(ClawdError):
    """The database refuses: damaged, of a newer clawd, or an operation that its states forbid."""

    exit_status = 74  # EX_IOERR


class TransitionRefused(StoreError):
    """A row is not in the state that this step starts from; somebody else has moved it."""


class Superseded(StoreError):
    """A new version goes on from one that no longer serves: its samples wait for the next update."""


class UpdateRefused(ClawdError):
    """The update was computed but must not be served (a guard or check tripped); its samples are quarantined."""


class NoRoom(ClawdError):
    """An update would need more memory than there is; it was not begun. The text names what would need less."""


class UpdateFailed(ClawdError):
    """The update could not be computed (a crash, no memory); its samples wait again."""
