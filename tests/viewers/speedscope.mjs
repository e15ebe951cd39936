// Opens FILE in speedscope's own page. Prints its table of functions, and what it exports of what
// it has read.
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { browse, modules, say } from './browser.mjs';

const [file] = process.argv.slice(2);
const { page, complaints, close } = await browse();
// As speedscope's own command line does it: a script beside the page hands the file over.
const handed = file + '.js';
const bytes = readFileSync(file).toString('base64');
writeFileSync(handed, `speedscope.loadFileFromBase64(${JSON.stringify('x.speedscope.json')}, "${bytes}")`);
await page.goto(`file://${modules}speedscope/dist/release/index.html#localProfilePath=${handed}`);
await page.getByText('Sandwich').waitFor();
await page.waitForFunction(() => document.title.length > ' - speedscope'.length);
const title = await page.title();
await page.keyboard.press('3');
await page.getByText('Symbol Name').waitFor();
// The rows come after the table's head.
await page.waitForFunction(() => [...document.querySelectorAll('tr')].filter((row) => row.innerText.includes('%')).length >= 8);
const table = await page.locator('tr').evaluateAll((rows) => rows.map((row) => row.innerText.split(/\s*\t\s*|\n/)));
const saved = page.waitForEvent('download');
await page.getByText('Export').first().click();
const read = JSON.parse(readFileSync(await (await saved).path(), 'utf8'));
await close();
rmSync(handed);
say({ title, table, read, complaints });
