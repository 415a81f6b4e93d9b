// graphile-worker: `install`, `fill N`, `submit N`, `work LOCAL`; the database by PGHOST & Co.
// A local queue of LOCAL and completions batched, for 24 at once; or, with 0, neither, for 8.
const fs = require("fs");
const { setTimeout } = require("timers/promises");
const { Logger, makeWorkerUtils, run } = require("graphile-worker");

const BATCH = 1000;
const logger = new Logger(() => () => {});
const connectionString = `postgresql:///${process.env.PGDATABASE}?host=${process.env.PGHOST}&user=${process.env.PGUSER}`;
let marked = false;

const leave = (line) => fs.appendFileSync(process.env.BENCH_MARK, `${line}\n`);

function noop() {
  if (marked) return;
  marked = true;
  leave(process.hrtime.bigint());
}

function stamped({ before }) {
  leave(`${before} ${process.hrtime.bigint()}`);
}

async function work(local) {
  const worker = local ? { localQueue: { size: local }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {};
  const concurrency = local ? 24 : 8;
  await run({
    connectionString, concurrency, maxPoolSize: concurrency + 2, parsedCronItems: [], logger,
    preset: { worker }, taskList: { noop, stamped },
  });
}

async function fill(utils, tasks) {
  for (let done = 0; done < tasks; done += BATCH) {
    const count = Math.min(BATCH, tasks - done);
    await utils.addJobs(Array.from({ length: count }, () => ({ identifier: "noop", payload: {} })));
  }
}

async function submit(utils, tasks) {
  for (let done = 0; done < tasks; done += 1) {
    await utils.addJob("stamped", { before: `${process.hrtime.bigint()}` });
    await setTimeout(20);
  }
}

async function main(command, number) {
  if (command === "work") return work(number);
  const utils = await makeWorkerUtils({ connectionString, logger });
  if (command === "install") await utils.migrate();
  if (command === "fill") await fill(utils, number);
  if (command === "submit") await submit(utils, number);
  await utils.release();
}

main(process.argv[2], Number(process.argv[3]));
