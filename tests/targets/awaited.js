// The inner half of awaiting.js: async functions that others await, which lie in another file.
'use strict';
async function query(leaf) {
  await null;
  leaf();
}
async function rejected(leaf) {
  try {
    await Promise.reject(new Error('it is caught'));
  } catch {
    leaf();
  }
}
const viaArrow = async (leaf) => {
  const rows = await query(leaf);
  return rows;
};
class Users {
  async load(leaf) {
    await null;
    return await viaArrow(leaf);
  }
}
async function* pages(leaf) {
  yield 1;
  await query(leaf);
  yield 2;
}
module.exports = { Users, pages, query, rejected, viaArrow };
