//! Leaves a frame by its unwind row where framehop cannot. Such a row has a CFA in another register
//! than rsp and rbp (hand-written assembly, realigned stacks), or one given by an expression
//! (realigned stacks, PLT entries).

use gimli::{
    CfaRule, Encoding, EndianSlice, EvaluationResult, Expression, LittleEndian, Location, Register,
    RegisterRule, UnwindExpression, Value, X86_64,
};

use crate::process::memory::ReadMemory;
use crate::unwinder::Registers;
use crate::unwinder::framehop::code::Code;
use crate::unwinder::framehop::stack::Stack;
use crate::unwinder::framehop::unwind_tables::Tables;

/// Maximum operations of one expression; real ones have a dozen.
const OPERATIONS_MAX: u32 = 256;

/// A frame that this walk has left, with what is needed to find a register it saved.
#[derive(Clone, Copy, Debug)]
pub enum Left {
    /// Left by unwind information for this address; its CFA.
    Frame { address: u64, cfa: u64 },
    /// A signal frame: the general registers lie from here on.
    Signal { registers: u64 },
    /// Left without information about registers.
    Blind,
}

/// The frame that is being left.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The address by which its code is looked up.
    pub address: u64,
    pub pc: u64,
    pub sp: u64,
    pub rbp: Option<u64>,
}

/// The caller, according to a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    pub cfa: u64,
    pub pc: u64,
    pub rbp: Option<u64>,
}

/// Why a row could not be evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowError {
    /// It needs rbp, which is unknown.
    NeedsRbp,
    Failed,
}

/// Index of each general register in a ucontext, in words from `gregs`, by DWARF number (rax rdx
/// rcx rbx rsi rdi rbp rsp r8..r15 rip).
const IN_UCONTEXT: [u64; 17] = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16];
/// In [`Registers::general`]: rax rbx rcx rdx rsi rdi r8..r15.
const IN_GENERAL: [Option<usize>; 16] = [
    Some(0),
    Some(3),
    Some(2),
    Some(1),
    Some(4),
    Some(5),
    None,
    None,
    Some(6),
    Some(7),
    Some(8),
    Some(9),
    Some(10),
    Some(11),
    Some(12),
    Some(13),
];
/// rbx, rbp, r12..r15: what a called function must preserve (System V ABI).
const PRESERVED: [u16; 6] = [3, 6, 12, 13, 14, 15];

/// Returns the address of a register (DWARF number) in a ucontext's general registers.
pub fn in_ucontext(gregs: u64, register: Register) -> Option<u64> {
    let word = IN_UCONTEXT.get(usize::from(register.0))?;
    gregs.checked_add(8 * word)
}

/// Evaluates the row of `frame`. `left` has the frames inside it, the outermost of them last.
pub fn caller<M: ReadMemory>(
    code: &mut Code,
    stack: &mut Stack<'_, M>,
    frame: Frame,
    registers: &Registers,
    left: &[Left],
) -> Result<Caller, RowError> {
    let address = frame.address;
    // An owned copy of the row: the search for a saved register evaluates other rows in the same
    // context.
    let (tables, context) = code.tables(address).ok_or(RowError::Failed)?;
    let tables = tables.clone();
    let (row, encoding) = tables.row(address, context).ok_or(RowError::Failed)?;
    let (cfa_rule, ra_rule, rbp_rule) =
        (row.cfa().clone(), row.register(X86_64::RA), row.register(X86_64::RBP));
    let mut evaluator = Evaluator {
        code,
        stack,
        tables: &tables,
        encoding,
        frame,
        registers,
        left,
        needs_rbp: false,
    };
    let result = evaluator.caller(&cfa_rule, ra_rule.as_ref(), rbp_rule.as_ref());
    let needs_rbp = evaluator.needs_rbp;
    result.ok_or(if needs_rbp { RowError::NeedsRbp } else { RowError::Failed })
}

struct Evaluator<'e, 's, M> {
    code: &'e mut Code,
    stack: &'e mut Stack<'s, M>,
    tables: &'e Tables,
    encoding: Encoding,
    frame: Frame,
    registers: &'e Registers,
    left: &'e [Left],
    needs_rbp: bool,
}

impl<M: ReadMemory> Evaluator<'_, '_, M> {
    fn caller(
        &mut self,
        cfa: &CfaRule<usize>,
        ra: Option<&RegisterRule<usize>>,
        rbp: Option<&RegisterRule<usize>>,
    ) -> Option<Caller> {
        let cfa = match cfa {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.register(*register)?.checked_add_signed(*offset)?
            }
            CfaRule::Expression(expression) => self.expression(expression, None)?,
        };
        let pc = match ra? {
            RegisterRule::SameValue | RegisterRule::Undefined => return None,
            rule => self.by_rule(rule, cfa, X86_64::RA)?,
        };
        // A caller whose rbp is unknown is still the caller.
        let needs_rbp = self.needs_rbp;
        let rbp = match rbp {
            None => self.frame.rbp,
            Some(RegisterRule::Expression(expression)) => self.rbp_at(expression, cfa),
            Some(rule) => self.by_rule(rule, cfa, X86_64::RBP),
        };
        self.needs_rbp = needs_rbp;
        Some(Caller { cfa, pc, rbp })
    }

    /// Returns the caller's rbp where an expression says it is saved. For functions that realign
    /// their stack, GCC (12 and others) emits one relative to rbp. It still applies at the two
    /// instructions after `leave` has restored rbp. There it leads into the caller's frame, and the
    /// caller's caller would be skipped. So the address must lie in the function's own frame, where
    /// functions save registers.
    fn rbp_at(&mut self, expression: &UnwindExpression<usize>, cfa: u64) -> Option<u64> {
        let at = self.expression(expression, Some(cfa))?;
        if (self.frame.sp..cfa).contains(&at) { self.stack.word(at) } else { self.frame.rbp }
    }

    fn by_rule(&mut self, rule: &RegisterRule<usize>, cfa: u64, register: Register) -> Option<u64> {
        match rule {
            RegisterRule::SameValue => self.register(register),
            RegisterRule::Offset(offset) => self.stack.word(cfa.checked_add_signed(*offset)?),
            RegisterRule::ValOffset(offset) => cfa.checked_add_signed(*offset),
            RegisterRule::Register(other) => self.register(*other),
            RegisterRule::Expression(expression) => {
                let at = self.expression(expression, Some(cfa))?;
                self.stack.word(at)
            }
            RegisterRule::ValExpression(expression) => self.expression(expression, Some(cfa)),
            RegisterRule::Constant(value) => Some(*value),
            _ => None,
        }
    }

    fn expression(
        &mut self,
        expression: &UnwindExpression<usize>,
        initial: Option<u64>,
    ) -> Option<u64> {
        self.code.context.spend(OPERATIONS_MAX as usize)?;
        let tables = self.tables;
        let Expression(bytes) = expression.get(&tables.section()).ok()?;
        let mut evaluation: gimli::Evaluation<EndianSlice<'_, LittleEndian>> =
            gimli::Evaluation::new(bytes, self.encoding);
        evaluation.set_max_iterations(OPERATIONS_MAX);
        if let Some(value) = initial {
            evaluation.set_initial_value(value);
        }
        let mut state = evaluation.evaluate().ok()?;
        loop {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.register(register)?;
                    evaluation.resume_with_register(Value::Generic(value)).ok()?
                }
                EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                    let value = self.stack.word(address)?;
                    evaluation.resume_with_memory(Value::Generic(value)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Some(address),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the value of a register in this frame.
    fn register(&mut self, register: Register) -> Option<u64> {
        match register {
            X86_64::RSP => Some(self.frame.sp),
            X86_64::RA => Some(self.frame.pc),
            X86_64::RBP => {
                self.needs_rbp |= self.frame.rbp.is_none();
                self.frame.rbp
            }
            register => self.saved(register),
        }
    }

    /// Returns a register that the frames inside this one have preserved: from the nearest one that
    /// saved it, else the thread's present value.
    fn saved(&mut self, register: Register) -> Option<u64> {
        for left in self.left.iter().rev() {
            match *left {
                Left::Signal { registers } => {
                    return self.stack.word(in_ucontext(registers, register)?);
                }
                Left::Blind => return None,
                Left::Frame { address, cfa } => {
                    if !PRESERVED.contains(&register.0) {
                        return None;
                    }
                    let (tables, context) = self.code.tables(address)?;
                    match tables.row(address, context)?.0.register(register) {
                        None | Some(RegisterRule::SameValue) => {}
                        Some(RegisterRule::Offset(offset)) => {
                            return self.stack.word(cfa.checked_add_signed(offset)?);
                        }
                        Some(_) => return None,
                    }
                }
            }
        }
        if !self.registers.general_known {
            return None;
        }
        let index = IN_GENERAL.get(usize::from(register.0)).copied().flatten()?;
        Some(self.registers.general[index])
    }
}

/// Returns the lowest offset from the CFA where the function around `address` saved a register.
pub fn lowest_saved(code: &mut Code, address: u64) -> Option<i64> {
    let (tables, context) = code.tables(address)?;
    let (row, _) = tables.row(address, context)?;
    let saved = row.registers().filter_map(|(register, rule)| match rule {
        RegisterRule::Offset(offset) if PRESERVED.contains(&register.0) => Some(*offset),
        _ => None,
    });
    saved.min()
}
