//! CPython programs: their stacks against what Python itself says of them, and against py-spy, on
//! every interpreter of this machine and those that `tests/pythons` has fetched.

mod asyncio;
#[path = "../common/mod.rs"]
mod common;
mod edges;
mod interpreters;
mod life;
mod locks;
mod naive;
mod profile;
mod report;
mod shapes;
mod shares;
mod undisturbed;
