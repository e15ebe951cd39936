use super::*;

const HOUR: u64 = 3600;

#[test]
fn a_scrolled_line_has_its_second_away_from_its_ends() {
    for (width, now, oldest) in [(80, 5 * HOUR, 0), (120, 25 * HOUR, 0), (200, 9 * HOUR, 4000)] {
        for (ages, bucket) in [(620..4_200, 10), (4_200..now - oldest, 60)] {
            for at in ages.step_by(7).map(|age| now - age) {
                let line = HistoryLine::past(width, now, (oldest, at), bucket).expect("room");
                let (first, end) = line.seconds();
                assert!(line.is_past && line.step.is_multiple_of(bucket), "{line:?}");
                assert!(line.span() >= LONGEST && end < now + line.step, "{line:?}");
                let cell = line.cell_of_second(at).expect("it is on the line");
                let from_end = line.cells - 1 - cell;
                let is_at_oldest = first <= oldest;
                let is_at_newest = end + line.step > now;
                assert!(
                    is_at_oldest || cell + 1 >= line.cells / 4,
                    "{at}: cell {cell} of {line:?}"
                );
                assert!(is_at_newest || from_end + 2 >= line.cells / 4, "{at}: {cell} of {line:?}");
                // No cell is of time that is not kept.
                assert!(first + line.step > oldest, "{line:?}");
                // Neither new facts nor a step within the middle move it.
                if !is_at_newest {
                    let later = HistoryLine::past(width, now + 500, (oldest, at), bucket);
                    let now = line.now;
                    assert_eq!(later.map(|later| HistoryLine { now, ..later }), Some(line));
                }
            }
        }
    }
}

#[test]
fn a_line_moves_by_half_of_its_cells() {
    let now = 10 * HOUR;
    let mut firsts: Vec<u64> = (700..now)
        .map(|age| now - age)
        .filter_map(|at| HistoryLine::past(120, now, (0, at), 60))
        .map(|line| line.first())
        .collect();
    firsts.dedup();
    // Of 66 cells of a minute; at the ends of history by less.
    let steps: Vec<u64> = firsts.windows(2).map(|pair| pair[0] - pair[1]).collect();
    assert!(steps[1..steps.len() - 1].iter().all(|step| *step == 33), "{steps:?}");
    assert_eq!(firsts.last(), Some(&0));
}

#[test]
fn there_is_no_line_without_room() {
    for width in 0..200 {
        let (newest, past) =
            (HistoryLine::newest(width, 9_000), HistoryLine::past(width, 9_000, (0, 500), 60));
        let cells = |line: Option<HistoryLine>, taken| {
            let room = (width as u64).saturating_sub(taken);
            assert_eq!(line.map(|line| line.cells), (room >= LEAST).then_some(room));
        };
        cells(newest, 44);
        cells(past, 54);
    }
}

#[test]
fn columns_are_those_of_cells() {
    let line = HistoryLine::past(120, 9_000, (0, 3_000), 60).expect("room");
    let cells = |range| (0..120).map(move |column| line.cell_at_column(column, range));
    let of_cells: Vec<u64> = cells(None).flatten().collect();
    assert_eq!(of_cells, (0..line.cells).collect::<Vec<_>>());
    assert_eq!(line.cell_at_column(13, None), Some(0));
    // Each bracket has a column, which is that of the cell beside it.
    for range in [(0, 1), (20, 25), (line.cells - 1, line.cells)] {
        let mut of_cells: Vec<u64> = cells(Some(range)).flatten().collect();
        assert_eq!(of_cells.len() as u64, line.cells + 2);
        of_cells.dedup();
        assert_eq!(of_cells, (0..line.cells).collect::<Vec<_>>());
    }
}
