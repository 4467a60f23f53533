// Makes, writes, reads, looks at, renames and removes files in parallel, by whatever libuv uses for
// that, and prints a digest of all that came of it: node node-files.js DIR COUNT [STATS-COMMAND]
// With a command, such as `softring`, it also prints how many requests its rings have taken.
'use strict';
const { createHash } = require('node:crypto');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs/promises');
const path = require('node:path');

const [dir, count, command] = [process.argv[2], Number(process.argv[3]), process.argv[4]];
// How many files at a time.
const JOBS = Number(process.env.JOBS || 48);
const name = (kind, i) => path.join(dir, `d${i % 16}`, `${kind}${i}`);
const content = (i) => Buffer.alloc((i * 37) % 9000, `file ${i} `);
// What an operation answers, or the name of its error.
const outcome = (promise) => promise.then(() => 'done', (error) => error.code);

async function one(i) {
  const told = [];
  const [from, to] = [name('new', i), name('old', i)];
  if (i % 2) {
    await fs.writeFile(from, content(i), { mode: 0o640 });
  } else {
    const file = await fs.open(from, 'wx', 0o640);
    const half = content(i).length >> 1;
    await file.writev([content(i).subarray(0, half), content(i).subarray(half)], 0);
    await file.datasync();
    told.push((await file.stat()).size);
    await file.close();
  }
  const { size, mode, nlink } = await fs.stat(from);
  told.push(size, mode, nlink, createHash('md5').update(await fs.readFile(from)).digest('hex'));
  const file = await fs.open(from, 'r');
  const parts = [Buffer.alloc(100), Buffer.alloc(5000)];
  const { bytesRead } = await file.readv(parts, 10);
  told.push(bytesRead, createHash('md5').update(Buffer.concat(parts)).digest('hex'));
  await file.close();
  told.push(await outcome(fs.open(from, 'wx')), await outcome(fs.stat(to)));
  await fs.rename(from, to);
  told.push(await outcome(fs.lstat(from)), (await fs.lstat(to)).size);
  told.push(await outcome(fs.symlink(path.basename(to), from)), (await fs.stat(from)).size);
  told.push(await outcome(fs.link(to, from)), await outcome(fs.unlink(from)));
  if (i % 3) told.push(await outcome(fs.unlink(to)), await outcome(fs.unlink(to)));
  return told.join(' ');
}

async function main() {
  for (let i = 0; i < 16; i++) await fs.mkdir(path.join(dir, `d${i}`));
  const digest = createHash('sha256');
  // Each has one operation at a time: more than libuv's ring has entries would go to its threads.
  const all = [];
  let next = 0;
  const job = async () => {
    for (let i; (i = next++) < count; ) all[i] = await one(i);
  };
  await Promise.all(Array.from({ length: JOBS }, job));
  all.forEach((line) => digest.update(`${line}\n`));
  for (let i = 0; i < 16; i++) {
    digest.update((await fs.readdir(path.join(dir, `d${i}`))).sort().join(' '));
  }
  console.log(`digest ${digest.digest('hex')}`);
  if (command) {
    const page = execFileSync(command, ['stats', '-p', String(process.pid), '--json']);
    const rings = JSON.parse(page)[0].rings;
    const ops = new Set(rings.flatMap((ring) => Object.keys(ring.ops)));
    console.log(`requests ${rings.reduce((sum, ring) => sum + ring.submitted, 0)}`);
    console.log(`operations ${[...ops].sort().join(' ')}`);
    console.log(`sq threads ${rings.filter((ring) => ring.SqThread > 0).length}`);
  }
}

main();
