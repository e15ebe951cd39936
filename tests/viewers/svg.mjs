// Opens FILE and does what users do: hovers, clicks on the frame named NAME, searches for it.
import { browse, say } from './browser.mjs';

const [file, name] = process.argv.slice(2);
const { page, requests, complaints, close } = await browse();
await page.goto('file://' + file);
const titles = await page.locator('#frames g title').allTextContents();
const widths = () =>
    page.locator('#frames g').evaluateAll((frames) =>
        frames.map((frame) => [
            frame.querySelector('title').textContent,
            frame.classList.contains('hide') ? 0 : frame.querySelector('rect').getBoundingClientRect().width,
        ]));
const named = page.locator('#frames g').filter({ has: page.locator('title', { hasText: name + ' (' }) }).first();
await named.hover();
const details = await page.locator('#details').textContent();
const heading = await page.locator('#title, #subtitle').allTextContents();
const before = await widths();
await named.click();
const zoomed = await widths();
await page.locator('#unzoom').click();
const after = await widths();
page.once('dialog', (dialog) => dialog.accept('^' + name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&') + ' \\('));
await page.locator('#search').click();
const matched = await page.locator('#matched').textContent();
const globals = await page.evaluate(() => window.broken === undefined);
await close();
say({ titles, heading, details, before, zoomed, after, matched, globals, requests, complaints });
