//! What the source view asks the session to read, and what that found.

use std::sync::Arc;

use crate::model::facts::tables::Location;
use crate::model::projection::CodePlace;

/// A request to read the text of a function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeRequest {
    /// The result has the same number.
    pub number: u64,
    pub of: CodeOf,
    pub code: CodeFile,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodeOf {
    /// The source file of this location, which has one.
    Source(Arc<Location>),
    Instructions,
}

/// The file with a function's code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeFile {
    /// A place in the function; `None` for code in no file.
    pub place: Option<CodePlace>,
    pub module: Arc<str>,
    pub build: Option<Arc<str>>,
    /// When the code was there already, ns since 1970, where no place says so: the start of the
    /// newest process, or of the saved session.
    pub started_unix_ns: Option<i128>,
    /// Commands and ids of the processes that are watched and live.
    pub processes: Vec<(u32, Arc<str>)>,
}

/// A source file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceText {
    /// Where it was read.
    pub path: String,
    /// Cleaned; tabs are spaces.
    pub lines: Vec<String>,
    /// It was changed after the program was built.
    pub is_newer: bool,
    /// The file has more lines.
    pub is_cut: bool,
}

/// An instruction of a function.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Instruction {
    /// Offset in the file, and length, bytes.
    pub offset: u64,
    pub len: u8,
    /// ELF virtual address.
    pub address: u64,
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Instructions {
    /// The file that was read.
    pub path: String,
    /// The name of the code around the function's hottest place, which may be that of a function
    /// into which it is inlined.
    pub function: String,
    /// By address.
    pub list: Vec<Instruction>,
    /// The function has more instructions.
    pub is_cut: bool,
}

/// The result of a request; else one sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeRead {
    pub number: u64,
    pub read: Found,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    Source(Result<Arc<SourceText>, String>),
    Instructions(Result<Arc<Instructions>, String>),
}
