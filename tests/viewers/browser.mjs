// A real browser without a window, and the errors it reports. The scripts beside print their
// findings as JSON.
import { createRequire } from 'node:module';

// Installed by tests/run.
export const modules = process.env.VIEWERS + '/node_modules/';
const { chromium } = createRequire(modules)('playwright-core');

// `requests`: the requested addresses. `complaints`: errors and warnings of the page.
export async function browse(size = { width: 1280, height: 800 }) {
    const quiet = ['--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
    const browser = await chromium.launch({
        executablePath: '/usr/bin/chromium',
        args: ['--no-sandbox', '--disable-gpu', '--enable-unsafe-swiftshader', ...quiet],
    });
    const page = await browser.newPage({ viewport: size });
    page.setDefaultTimeout(20000);
    const requests = [];
    const complaints = [];
    page.on('request', (request) => requests.push(request.url()));
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (said) => {
        // Messages of the driver of the software renderer do not concern the page.
        if (['error', 'warning'].includes(said.type()) && !said.text().includes('GL Driver Message')) {
            complaints.push(said.text());
        }
    });
    return { page, requests, complaints, close: () => browser.close() };
}

export const say = (found) => console.log(JSON.stringify(found));
