//! Functions whose code was followed, with the state of the stack at each of their instructions.

use rustc_hash::FxHashMap;

use crate::process::memory::ReadMemory;
use crate::unwinder::framehop::stack_depth::{Flow, flows};
use crate::unwinder::framehop::unwind_tables::Context;

/// Maximum instructions kept: 6 MiB. V8's built-in functions have many more, but a server is seen
/// in some hundred of them only, most of which have some hundred instructions.
const KEPT_MAX: usize = 1 << 17;

/// What was followed, by the starts of functions. Of a function that is too long nothing is
/// reached.
#[derive(Default)]
pub struct FollowedFunctions {
    functions: FxHashMap<u64, Box<[(u64, Flow)]>>,
    instructions: usize,
}

impl FollowedFunctions {
    /// Returns the state of the stack at `pc`, on all paths through the function that begins at
    /// `start`. Where code could not be read, or `context` is used up, nothing is remembered.
    pub fn at(
        &mut self,
        memory: &impl ReadMemory,
        start: u64,
        pc: u64,
        context: &mut Context,
    ) -> Flow {
        if let Some(flows) = self.functions.get(&start) {
            return in_flows(flows, pc);
        }
        let flows = flows(memory, start, context);
        let Some(flows) = flows.filter(|_| !context.exhausted()) else {
            // Some paths may be missing.
            return Flow::default();
        };
        let flow = in_flows(&flows, pc);
        if self.instructions + flows.len() > KEPT_MAX {
            self.clear();
        }
        self.instructions += flows.len();
        self.functions.insert(start, flows);
        flow
    }

    /// Forgets the functions whose start does not fulfil the condition.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.functions.retain(|start, _| keep(*start));
        self.instructions = self.functions.values().map(|flows| flows.len()).sum();
    }

    pub fn clear(&mut self) {
        *self = FollowedFunctions::default();
    }
}

fn in_flows(flows: &[(u64, Flow)], pc: u64) -> Flow {
    flows
        .binary_search_by_key(&pc, |(at, _)| *at)
        .map_or_else(|_| Flow::default(), |place| flows[place].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwinder::framehop::stack_depth::{REMEMBERED_MAX, follow};
    use crate::unwinder::framehop::tests::Code;

    /// push rbx; je (to the ret); pop rbx; ret
    const CODE: [u8; 5] = [0x53, 0x74, 1, 0x5b, 0xc3];

    #[test]
    fn each_instruction_of_a_function_is_as_followed_alone() {
        let (memory, mut functions) = (Code(CODE.to_vec()), FollowedFunctions::default());
        for pc in 0xfff..0x1006 {
            let alone = follow(&memory, 0x1000, pc, &mut Context::default());
            let flow = functions.at(&memory, 0x1000, pc, &mut Context::default());
            assert_eq!(flow, alone, "{pc:x}");
        }
        let depths = [0x1000, 0x1001, 0x1003, 0x1004]
            .map(|pc| functions.at(&Code(Vec::new()), 0x1000, pc, &mut Context::default()).depth);
        assert_eq!(depths, [Some(0), Some(8), Some(8), None], "it is remembered");
        assert_eq!(functions.instructions, 4);
    }

    #[test]
    fn what_could_not_be_followed_whole_is_not_remembered() {
        let (memory, mut functions) = (Code(CODE.to_vec()), FollowedFunctions::default());
        let mut used_up = Context::default();
        let _ = used_up.spend(usize::MAX);
        assert_eq!(functions.at(&memory, 0x1000, 0x1000, &mut used_up), Flow::default());
        assert!(functions.functions.is_empty());
        // je to where nothing can be read; a cut instruction.
        for code in [&[0x74, 100, 0xc3][..], &[0x74, 1, 0xc3, 0x48, 0x89]] {
            let memory = Code(code.to_vec());
            let flow = functions.at(&memory, 0x1000, 0x1002, &mut Context::default());
            assert!(!flow.reached && functions.functions.is_empty(), "{code:x?}");
        }
    }

    #[test]
    fn functions_are_forgotten_where_code_changes_or_there_are_too_many() {
        let long = [vec![0x90; REMEMBERED_MAX - 1], vec![0xc3]].concat();
        let (memory, mut functions) = (Code(long), FollowedFunctions::default());
        let mut at = |start| functions.at(&memory, start, 0x1200, &mut Context::default()).reached;
        // The last one, which is one instruction shorter, would be one too many.
        assert!((0..=8).all(|into| at(0x1000 + into)));
        assert_eq!(functions.functions.len(), 1);
        assert_eq!(functions.instructions, REMEMBERED_MAX - 8);
        functions.at(&memory, 0x2000, 0x2000, &mut Context::default());
        functions.retain(|start| start == 0x2000);
        assert_eq!(functions.functions.keys().collect::<Vec<_>>(), [&0x2000]);
        assert_eq!(functions.instructions, REMEMBERED_MAX - 0x1000);
    }
}
