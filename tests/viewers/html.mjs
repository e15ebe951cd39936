// Opens FILE and does what users do, by pointer and by keys; NAME is a function to search for.
import { browse, say } from './browser.mjs';

const [file, name] = process.argv.slice(2);
const { page, requests, complaints, close } = await browse();
await page.goto('file://' + file);
await page.locator('#rows tr').first().waitFor();
const found = { title: await page.title(), head: await page.locator('#head').textContent(), rows: {} };
const line = () => page.locator('#line').textContent();
const table = () => page.locator('#rows tr').evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent)));
const metric = (word) => page.locator('#metrics label', { hasText: word }).first().click();

found.sentences = await page.locator('#sentences li').allTextContents();
found.locks = await page.locator('#locks').evaluate((box) => (box.hidden ? '' : box.innerText + box.lastElementChild.textContent));

found.rows.wall = await table();
await metric('CPU');
found.rows.cpu = await table();
await metric('Wall');

// Every frame that the pointer can reach.
found.tips = await page.evaluate(() => {
    const canvas = document.getElementById('canvas');
    const tip = document.getElementById('tip');
    const box = canvas.getBoundingClientRect();
    const seen = new Map();
    for (let y = 5; y < box.height; y += 19) {
        for (let x = 1; x < box.width; x += 3) {
            canvas.dispatchEvent(new MouseEvent('mousemove', { clientX: box.left + x, clientY: box.top + y, bubbles: true }));
            const waits = [...tip.querySelectorAll('.words')].map((words) => words.textContent).filter((text) => text.startsWith('waited for '));
            if (!tip.hidden) seen.set(tip.textContent, [tip.querySelector('b').textContent, tip.querySelector('dd').textContent, waits]);
        }
    }
    canvas.dispatchEvent(new MouseEvent('mouseleave'));
    return [...seen.values()];
});

// A click on a group zooms; keys walk on; Escape goes back.
const canvas = page.locator('#canvas');
await canvas.hover({ position: { x: 40, y: 19 + 5 } });
found.under = await page.locator('#tip b').textContent();
await canvas.click({ position: { x: 40, y: 19 + 5 } });
found.clicked = await line();
found.zoomed = await page.locator('#reset').isEnabled();
await page.keyboard.press('ArrowDown');
await page.keyboard.press('Enter');
found.walked = await line();
for (let i = 0; i < 5; i++) await page.keyboard.press('Escape');
found.unzoomed = await page.locator('#reset').isDisabled();

// Search by keys, and away again.
await page.keyboard.press('/');
await page.keyboard.type('^' + name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&') + '$');
found.matched = await page.locator('#matched').textContent();
found.found = [...new Set((await table()).map((row) => row[3]))];
await page.keyboard.press('Escape');

// A row of the table, and only the stacks that it is on.
const row = page.locator('#rows tr').filter({ has: page.locator(`td:nth-child(4):text-is(${JSON.stringify(name)})`) }).first();
await row.click();
await page.locator('#only').click();
found.only = await line();
await page.locator('#only').click();

// Who calls it: it is the outermost frame, its callers are below.
await page.locator('#callers').click();
found.callers = await line();
await canvas.focus();
await page.keyboard.press('ArrowDown');
found.called = await line();
await page.keyboard.press('ArrowDown');
found.caller = await line();
await page.keyboard.press('Escape');
found.back = await line();

// The user's own functions: the same time on fewer rows, and what they call elsewhere.
const levels = page.locator('#levels label');
await levels.nth(0).click();
found.mine = { rows: await table(), line: await line() };
await levels.nth(1).click();
found.all = { rows: await table(), line: await line() };

// One group, the other direction, the other colours and theme.
found.group = await page.locator('#groups option').nth(1).textContent();
await page.locator('#groups').selectOption({ index: 1 });
found.grouped = await line();
await page.locator('#directions label').nth(1).click();
for (const by of ['role', 'kind', 'module', 'state']) await page.locator('#colours').selectOption(by);
await page.locator('#theme').click();
await page.locator('#about summary').click();
await page.setViewportSize({ width: 420, height: 800 });
await page.waitForTimeout(100);
found.whole = await page.evaluate(() => window.broken === undefined && document.scripts.length === 2 && document.images.length === 0);
await close();
say({ ...found, requests, complaints });
