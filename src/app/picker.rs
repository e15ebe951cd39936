//! The list of processes to pick from, where no target was named.

use super::event::ProcessRow;
use super::list::List;

/// Heaviest first; the selected process stays selected when the list is read again.
#[derive(Clone, Debug, Default)]
pub struct Picker {
    pub rows: Vec<ProcessRow>,
    pub list: List,
    /// False until the first answer came.
    pub known: bool,
    /// Why the last one that was picked cannot be watched.
    pub error: Option<String>,
}

impl Picker {
    pub fn set(&mut self, mut rows: Vec<ProcessRow>, height: usize) {
        let selected = self.rows.get(self.list.cursor).map(|r| r.pid).filter(|_| self.list.cursor > 0);
        rows.sort_by(|a, b| {
            let cpu = |r: &ProcessRow| r.cpu_percent.unwrap_or(0.0);
            cpu(b).total_cmp(&cpu(a)).then(b.threads.cmp(&a.threads)).then(a.pid.cmp(&b.pid))
        });
        self.rows = rows;
        self.known = true;
        let cursor = selected.and_then(|pid| self.rows.iter().position(|r| r.pid == pid));
        self.list.follow(cursor.unwrap_or(0), self.rows.len(), height);
    }

    pub fn selected(&self) -> Option<&ProcessRow> {
        self.rows.get(self.list.cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, cpu: f64) -> ProcessRow {
        ProcessRow { pid, user: "u".into(), command: "c".into(), threads: 1, cpu_percent: Some(cpu), runtime: "native" }
    }

    #[test]
    fn the_selection_follows_its_process() {
        let mut picker = Picker::default();
        picker.set(vec![row(1, 5.0), row(2, 9.0), row(3, 1.0)], 10);
        assert_eq!(picker.rows.iter().map(|r| r.pid).collect::<Vec<_>>(), [2, 1, 3]);
        picker.list.cursor = 1;
        picker.set(vec![row(1, 0.0), row(2, 9.0), row(3, 1.0)], 10);
        assert_eq!(picker.selected().map(|r| r.pid), Some(1));
        picker.set(vec![row(3, f64::NAN)], 10);
        assert_eq!(picker.selected().map(|r| r.pid), Some(3));
    }
}
