// Loads FILE with the Firefox Profiler's own command line tool, and prints each thread's call tree.
// The tool keeps a process between its commands, which is ended again, and files in its home.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [file] = process.argv.slice(2);
const tool = process.env.VIEWERS + '/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js';
const home = mkdtempSync(join(tmpdir(), 'viewers-'));
const options = { env: { PATH: process.env.PATH, HOME: home }, encoding: 'utf8', maxBuffer: 1 << 28 };
const ask = (...words) => execFileSync(process.execPath, [tool, ...words], options);

try {
    ask('load', file);
    try {
        const meta = ask('profile', 'meta');
        const threads = JSON.parse(ask('thread', 'list', '--json', '--limit', '1000')).threads;
        const trees = threads.map(({ name, threadHandle }) => {
            const all = ['--include-idle', '--max-lines', '1000000', '--scoring', 'percentage-only'];
            return { name, ...JSON.parse(ask('thread', 'samples-top-down', '--json', '--thread', threadHandle, ...all)) };
        });
        console.log(JSON.stringify({ meta, trees }));
    } finally {
        ask('stop');
    }
} finally {
    rmSync(home, { recursive: true });
}
