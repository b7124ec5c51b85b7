// Tells clawd what OpenClaw knows and a request doesn't say: which session it belongs to, over compactions and from one
// reset to the next, and that a request is work of OpenClaw's own and no turn of a person's. Two headers; prompts,
// tools and answers stay as they are.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const SESSION = "X-Session-Id";
const TURN_TYPE = "X-Turn-Type";

// OpenClaw keeps a session's id when a person begins anew, so its resets are counted here, and kept over restarts.
const BEGINS_ANEW = new Set(["new", "reset", "idle", "daily", "deleted"]);
const COUNTS_FILE = "clawd-session-resets.json";
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

/** How often each session has begun anew. Read at each use: the gateway isn't the only process that may run sessions. */
class Resets {
  #path;

  constructor(folder) {
    this.#path = join(folder, COUNTS_FILE);
  }

  /** Throws if there are counts that can't be read. */
  count(sessionId) {
    return this.#counts()[sessionId] ?? 0;
  }

  add(sessionId) {
    const counts = this.#counts();
    counts[sessionId] = (counts[sessionId] ?? 0) + 1;
    const written = `${this.#path}.${process.pid}`;
    writeFileSync(written, JSON.stringify(counts), { mode: 0o600 });
    renameSync(written, this.#path);
  }

  #counts() {
    return existsSync(this.#path) ? JSON.parse(readFileSync(this.#path, "utf8")) : {};
  }
}

/** `streamFn` with further headers: those that `headersOf` gives for a request's options. */
function withHeaders(streamFn, headersOf) {
  if (!streamFn) return undefined;
  return (model, context, options) =>
    streamFn(model, context, { ...options, headers: { ...options?.headers, ...headersOf(options) } });
}

/** The headers of a request in a run. Only what isn't a person's turn is said: clawd sees more in the request itself. */
function headersOfRun(run) {
  if (!run) return {};
  return {
    ...(run.session ? { [SESSION]: run.session } : {}),
    ...(run.trigger && run.trigger !== "user" ? { [TURN_TYPE]: "side" } : {}),
  };
}

export default {
  id: "clawd",
  name: "clawd",
  description: "Tells clawd which session a request belongs to, and which requests are OpenClaw's own work.",

  register(api) {
    const runs = new Runs();
    const resets = new Resets(api.runtime.state.resolveStateDir(process.env));

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
      if (BEGINS_ANEW.has(reason)) resets.add(sessionId);
    });

    /** Without the count the same name could mean two conversations: then none is sent, and clawd goes by the rest. */
    function nameOf(sessionId) {
      if (!sessionId) return undefined;
      try {
        return `${sessionId}/${resets.count(sessionId)}`;
      } catch (error) {
        api.logger.warn(`the session is not named to clawd: ${error}`);
        return undefined;
      }
    }
  },
};
