// Tells clawd what OpenClaw knows and a request doesn't say: which session it belongs to, over compactions and from one
// reset to the next, and that a request is work of OpenClaw's own and no turn of a person's. Two headers; prompts,
// tools and answers stay as they are.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const SESSION = "X-Session-Id";
const TURN_TYPE = "X-Turn-Type";

// OpenClaw keeps a session's id when a person begins anew, so when that was is noted here, and kept over restarts.
const BEGINS_ANEW = new Set(["new", "reset", "idle", "daily", "deleted"]);
const NOTES_FILE = "clawd-session-beginnings.json";
const NOTES_KEPT = 2000;
// OpenClaw's own work in a copy of a session has an id of its own each time; clawd files it by OpenClaw's other headers.
const INTERNAL = "internal-session-effects";
// Runs that no person started, by what OpenClaw calls their trigger. Of any other kind nothing is said.
const STARTED_BY_NOBODY = new Set(["heartbeat", "cron", "memory"]);
const RUNS_KEPT = 500; // a run that never ends must not be remembered for ever

/** What is known of the runs that go on: run id → { session, trigger }. */
class Runs {
  #known = new Map();

  begin(runId, run) {
    this.#known.set(runId, run);
    if (this.#known.size > RUNS_KEPT) this.#known.delete(this.#known.keys().next().value);
  }

  end(runId) {
    this.#known.delete(runId);
  }

  /** A request's id is `<run id>:model:<number>`. */
  of(requestId) {
    return this.#known.get(String(requestId ?? "").replace(/:model:\d+$/, ""));
  }
}

/** When each session last began anew, in minutes since 1970. The gateway isn't the only process that runs sessions. */
class Beginnings {
  #path;

  constructor(folder) {
    this.#path = join(folder, NOTES_FILE);
  }

  of(sessionId) {
    return this.#read()[sessionId] ?? this.beginAnew(sessionId);
  }

  /** Two beginnings of one session never have the same number. */
  beginAnew(sessionId) {
    const notes = this.#read();
    const minutes = Math.max((notes[sessionId] ?? 0) + 1, Math.floor(Date.now() / 60_000));
    this.#write({ ...notes, [sessionId]: minutes });
    return minutes;
  }

  /** Throws if there are notes that can't be read. */
  #read() {
    return existsSync(this.#path) ? JSON.parse(readFileSync(this.#path, "utf8")) : {};
  }

  #write(notes) {
    const newest = Object.entries(notes).sort(([, one], [, other]) => other - one);
    const written = `${this.#path}.${process.pid}`;
    writeFileSync(written, JSON.stringify(Object.fromEntries(newest.slice(0, NOTES_KEPT))), { mode: 0o600 });
    renameSync(written, this.#path);
  }
}

/** `streamFn` with further headers: those that `headersOf` gives for a request's options. */
function withHeaders(streamFn, headersOf) {
  if (!streamFn) return undefined;
  return (model, context, options) =>
    streamFn(model, context, { ...options, headers: { ...options?.headers, ...headersOf(options) } });
}

/** The headers of a request in a run. A turn is never called a person's: clawd sees more in the request itself. */
function headersOfRun(run) {
  if (!run) return {};
  return {
    ...(run.session ? { [SESSION]: run.session } : {}),
    ...(STARTED_BY_NOBODY.has(run.trigger) ? { [TURN_TYPE]: "side" } : {}),
  };
}

export default {
  id: "clawd",
  name: "clawd",
  description: "Tells clawd which session a request belongs to, and which requests are OpenClaw's own work.",

  register(api) {
    const runs = new Runs();
    const beginnings = new Beginnings(api.runtime.state.resolveStateDir(process.env));

    api.registerProvider({
      id: "clawd",
      label: "clawd",
      auth: [],
      wrapStreamFn: ({ streamFn }) => withHeaders(streamFn, (options) => headersOfRun(runs.of(options?.requestId))),
      // Titles, model runs and the like: asked beside every conversation.
      wrapSimpleCompletionStreamFn: ({ streamFn }) => withHeaders(streamFn, () => ({ [TURN_TYPE]: "side" })),
    });

    api.on("before_prompt_build", (_event, { runId, sessionId, trigger }) => {
      if (runId) runs.begin(runId, { session: nameOf(sessionId), trigger });
    });
    api.on("agent_end", (event, context) => runs.end(event.runId ?? context.runId));
    api.on("session_end", ({ sessionId, reason }) => {
      if (BEGINS_ANEW.has(reason)) beginnings.beginAnew(sessionId);
    });

    /** Without a beginning the same name could mean two conversations: then none is sent, and clawd goes by the rest. */
    function nameOf(sessionId) {
      if (!sessionId || sessionId.startsWith(INTERNAL)) return undefined;
      try {
        // Not `:`, which stands in OpenClaw's own names for a session and would make this one of them.
        return `${sessionId}/${beginnings.of(sessionId)}`;
      } catch (error) {
        api.logger.warn(`the session is not named to clawd: ${error}`);
        return undefined;
      }
    }
  },
};
