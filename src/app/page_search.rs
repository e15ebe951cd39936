//! Search in a page of text that is drawn over the view: help, or who wakes whom.

use regex::Regex;

use super::help::Line;
use super::list::{List, Step};
use super::prompt::{Prompt, Question};
use super::{AppState, Overlay};

#[derive(Default)]
pub struct PageSearch {
    /// The page, while a prompt is drawn over it.
    below: Option<Overlay>,
    pattern: Option<Regex>,
    /// The line that was found last.
    at: Option<usize>,
}

impl PageSearch {
    /// Forgets the line that was found: lines have other numbers now.
    pub(super) fn forget_line(&mut self) {
        self.at = None;
    }
}

impl AppState {
    /// Returns the page that is drawn over the view, also below a prompt.
    pub(super) fn page(&self) -> Option<&Overlay> {
        let page = self.page_search.below.as_ref().or(self.overlay.as_ref());
        page.filter(|page| matches!(page, Overlay::Help(_) | Overlay::Wakers(_)))
    }

    /// Returns which lines of that page are displayed.
    pub fn page_list(&self) -> Option<&List> {
        match self.page()? {
            Overlay::Help(list) | Overlay::Wakers(list) => Some(list),
            _ => None,
        }
    }

    /// Asks what to search the page for.
    pub(super) fn ask_page(&mut self) {
        self.page_search.below = self.overlay.take();
        self.overlay = Some(Overlay::Prompt(Prompt::new(Question::Page, "")));
    }

    /// Displays the page again, after a prompt.
    pub(super) fn leave_page_prompt(&mut self) {
        self.overlay = self.page_search.below.take();
        self.keep_on_screen();
    }

    /// Searches the page for a pattern.
    pub(super) fn search_page(&mut self, pattern: Option<Regex>) {
        self.leave_page_prompt();
        self.page_search.pattern = pattern;
        self.page_search.at = None;
        if self.page_search.pattern.is_some() {
            self.next_line(1);
        }
    }

    /// Scrolls to the next (1) or previous (-1) line that matches.
    pub(super) fn next_line(&mut self, by: isize) {
        let Some(pattern) = &self.page_search.pattern else {
            return self.say("nothing is searched for; / asks");
        };
        let is_match = |line: &Line| match line {
            Line::Heading(text) | Line::Text(text) => pattern.is_match(text),
            Line::Entry(word, doc) => pattern.is_match(word) || pattern.is_match(doc),
            Line::Empty => false,
        };
        let lines = self.page_lines();
        let found: Vec<usize> = (0..lines.len()).filter(|at| is_match(&lines[*at])).collect();
        let top = self.page_list().map_or(0, |list| list.top);
        let visible = top..top + self.help_rows();
        // After the user has scrolled, from the first line that is displayed.
        let here = self.page_search.at.filter(|at| visible.contains(at));
        let next = match (by > 0, here) {
            (true, Some(here)) => found.iter().find(|at| **at > here).or(found.first()),
            (true, None) => found.iter().find(|at| **at >= top).or(found.first()),
            (false, here) => found.iter().rfind(|at| **at < here.unwrap_or(top)).or(found.last()),
        };
        let next = next.copied();
        self.page_search.at = next;
        match next {
            Some(line) => self.step(Step::To(line)),
            None => self.say("no match"),
        }
    }

    /// Returns the line of the page that was found last.
    pub fn found_line(&self) -> Option<usize> {
        self.page_search.at
    }
}
