// Opens a report in Chromium and uses it like a user: in light mode, in dark mode, and on a phone.
//
//     node tools/check_report.mjs REPORT.html [FOLDER FOR SCREENSHOTS]
//
// Needs Chromium (CHROMIUM names it, or /usr/bin/chromium is taken) and the package playwright-core, found from the folder
// that the variable NODE_MODULES names or from here.

import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.env.NODE_MODULES ?? import.meta.dirname, "x.js"));
const { chromium } = require("playwright-core");

const [report, pictures] = process.argv.slice(2);
const address = pathToFileURL(resolve(report)).href;
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
let failures = 0, checks = 0;
const check = (what, holds) => {
  checks++;
  if (!holds) {
    failures++;
    console.error(`FAILED: ${what}`);
  }
};

const views = [
  { name: "light", options: { colorScheme: "light", viewport: { width: 1280, height: 900 } } },
  { name: "dark", options: { colorScheme: "dark", viewport: { width: 1280, height: 900 } } },
  { name: "phone", options: { colorScheme: "light", viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 } },
];

// The contrast of a text with its background, as the accessibility guidelines define it.
const contrast = (selector) => {
  const rgb = (text) => (text.match(/[\d.]+/g) ?? [0, 0, 0]).slice(0, 3).map(Number);
  const light = (color) => {
    const [r, g, b] = color.map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(selector);
  let behind = element;
  while (behind && getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const a = light(rgb(getComputedStyle(element).color)), b = light(rgb(getComputedStyle(behind ?? document.body).backgroundColor));
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });
try {
  for (const { name, options } of views) {
    const context = await browser.newContext({ ...options, offline: true });
    const page = await context.newPage();
    const requests = [], problems = [];
    page.on("request", (request) => requests.push(request.url()));
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(String(error)));
    await page.goto(address);
    const outside = requests.filter((url) => url !== address && !url.startsWith("data:"));
    check(`${name}: nothing is asked for from outside (${outside})`, outside.length === 0);

    const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    check(`${name}: no scrolling sideways (${wide})`, wide[0] <= wide[1]);
    const expected = await page.evaluate(() => JSON.parse(document.getElementById("data").textContent));
    const charts = await page.locator(".chart svg").count();
    check(`${name}: all charts are drawn (${charts})`, charts === (expected.charts ?? []).length && charts > 0);
    const curves = await page.locator(".chart path.curve").evaluateAll((all) => all.map((p) => p.getAttribute("d")));
    check(`${name}: curves have points`, curves.every((d) => d.length > 10 && !d.includes("NaN")));
    for (const selector of ["h1", ".dim", ".chart h3"]) {
      const ratio = await page.evaluate(contrast, selector);
      check(`${name}: ${selector} can be read (${ratio.toFixed(1)})`, ratio >= 4.5);
    }

    const first = page.locator(".chart svg").first(), tip = page.locator("#tip");
    await first.scrollIntoViewIfNeeded();
    check(`${name}: no values before one points`, await tip.isHidden());
    const box = await first.boundingBox();
    if (options.hasTouch) await page.touchscreen.tap(box.x + box.width * 0.6, box.y + 60);
    else await page.mouse.move(box.x + box.width * 0.6, box.y + 60);
    const said = await tip.textContent();
    check(`${name}: pointing shows values (${said})`, (await tip.isVisible()) && /^step \d+.*\d/.test(said));
    if (pictures) await page.screenshot({ path: join(pictures, `${name}-hover.png`) });
    await page.mouse.move(2, 2);

    if (!options.hasTouch) {
      await first.focus();
      await page.keyboard.press("ArrowRight");
      const one = await tip.textContent();
      await page.keyboard.press("ArrowRight");
      check(`${name}: arrow keys walk along a curve`, one !== (await tip.textContent()) && one.startsWith("step"));
      const line = page.locator(".chart path.curve").first(), before = await line.getAttribute("d");
      await page.locator("#log").check();
      check(`${name}: the logarithmic scale changes a curve`, before !== (await page.locator(".chart path.curve").first().getAttribute("d")));
      await page.locator("#log").uncheck();
      await page.locator("#smooth").fill("0.8");
      check(`${name}: smoothing keeps what was measured`, (await page.locator(".chart path.raw").count()) > 0);
      await page.locator("#smooth").fill("0");
      const spark = page.locator(".spark svg").first();
      if (await spark.count()) {
        await spark.hover();
        check(`${name}: a small curve shows its values`, (await tip.isVisible()) && /step \d+/.test(await tip.textContent()));
        await page.mouse.move(2, 2);
      }
    }

    const cells = page.locator("[data-cell]");
    if (await cells.count()) {
      const cell = page.locator(".wrong [data-cell], [data-cell]").first();
      await cell.scrollIntoViewIfNeeded();
      await (options.hasTouch ? cell.tap() : cell.click());
      check(`${name}: a cell says what it is`, /\d+ of \d+/.test(await page.locator("#cell").textContent()));
      const loaded = await page.locator("#cell img").evaluateAll((all) =>
        Promise.all(all.map((image) => image.decode().then(() => image.naturalWidth, () => 0))));
      check(`${name}: the examples are pictures (${loaded})`, loaded.every((width) => width > 0));
    }
    const nodes = await page.locator("svg.graph g").evaluateAll((all) => all.map((g) => {
      const { x, y, width, height } = g.querySelector("rect").getBBox();
      const text = g.querySelector("text").getBBox();
      return { x, y, width, height, fits: text.width <= width };
    }));
    const overlap = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
    check(`${name}: no two nodes of the graph overlap`, nodes.every((a, k) => nodes.slice(k + 1).every((b) => !overlap(a, b))));
    check(`${name}: names fit their nodes`, nodes.every((node) => node.fits));

    const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const before = await back();
    if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
    await page.locator("#theme").click();
    check(`${name}: the button turns light into dark and back`, before !== (await back()));
    await page.locator("#theme").click();
    check(`${name}: and back`, before === (await back()));
    check(`${name}: nothing was wrong on the page (${problems})`, problems.length === 0);
    await context.close();
  }
} finally {
  await browser.close();
}
console.log(`${checks - failures} passed, ${failures} failed`);
process.exit(failures === 0 ? 0 : 1);
