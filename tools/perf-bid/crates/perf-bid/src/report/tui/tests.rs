// SPDX-License-Identifier: GPL-2.0
//! The terminal view in a terminal made of memory.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use perf_bid_core::profile::Profile;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::crossterm::event::KeyEvent;
use ratatui::crossterm::event::KeyModifiers;
use ratatui::style::Color;

use super::app::App;
use super::app::Source;
use super::draw;
use crate::report::fixture;
use crate::report::fixture::Chain;
use crate::report::names::Names;
use crate::report::view::Settings;

const FIRST: &[Chain<'_>] = &[
    ("worker", &["main", "mid", "leaf"], 60),
    ("worker", &["main", "mid", "other"], 20),
    ("helper", &["main", "leaf"], 15),
    ("worker", &["main"], 5),
];
const SECOND: &[Chain<'_>] = &[("worker", &["main", "fault"], 9)];

struct Screen {
    terminal: Terminal<TestBackend>,
    colours: bool,
}

impl Screen {
    fn new(width: u16, height: u16) -> Self {
        Self { terminal: Terminal::new(TestBackend::new(width, height)).unwrap(), colours: true }
    }

    fn draw(&mut self, app: &mut App<'_>) -> Vec<String> {
        self.terminal.draw(|frame| draw::draw(frame, app, self.colours)).unwrap();
        let buffer = self.terminal.backend().buffer();
        let line = |y| {
            let cells = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol());
            cells.collect::<String>().trim_end().to_owned()
        };
        (0..buffer.area.height).map(line).collect()
    }
}

fn app<'a>(profile: &'a Profile, names: &'a Names, args: &'a crate::cli::Report) -> App<'a> {
    App::new(Source {
        profile,
        names,
        events: profile.events.iter().collect(),
        settings: Settings::new(args, true, false),
        filter: &args.filter,
        notes: vec!["a note".into()],
    })
}

/// Runs `test` with a screen of 80×24 and two events.
fn with_app(args: &[&str], test: impl FnOnce(&mut App<'_>, &mut Screen)) {
    let (profile, names) = fixture::profile(&[FIRST, SECOND]);
    let args = fixture::arguments(args);
    test(&mut app(&profile, &names, &args), &mut Screen::new(80, 24));
}

fn press(app: &mut App<'_>, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            '↓' => KeyCode::Down,
            key => KeyCode::Char(key),
        };
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

#[test]
fn rows_and_details_of_the_first_are_shown() {
    with_app(&["--sort", "sym"], |app, screen| {
        let lines = screen.draw(app);
        assert_eq!(lines[0], "4 samples of 'event-0' (1 of 2), callees");
        assert_eq!(lines[1], "  Children      Self  Symbol");
        assert_eq!(lines[2], "+  100.00%     5.00%  [.] main");
        assert_eq!(lines[3], "+   80.00%     0.00%  [.] mid");
        assert!(lines[18].starts_with("────"), "{lines:#?}");
        assert_eq!(lines[19], "main: 4 samples, event count 100");
        assert!(lines[21].starts_with("In: //anon"), "{lines:#?}");
        assert!(lines[23].starts_with("?: help"), "{lines:#?}");
        press(app, "d");
        assert!(!screen.draw(app)[18].starts_with('─'));
    });
}

#[test]
fn trees_open_and_close() {
    with_app(&["--sort", "sym"], |app, screen| {
        press(app, "\n");
        let lines = screen.draw(app);
        assert_eq!(lines[2], "-  100.00%     5.00%  [.] main");
        assert_eq!(lines[3], "            +  80.00%  mid");
        assert_eq!(lines[4], "            +  15.00%  leaf");
        press(app, "↓+");
        let lines = screen.draw(app);
        assert_eq!(lines[3], "            -  80.00%  mid");
        assert_eq!(lines[4], "              +  60.00%  leaf");
        assert_eq!(lines[5], "              +  20.00%  other");
        // A closed branch hands over to the one it is in.
        press(app, "↓--");
        assert_eq!(app.selected, 1);
        assert_eq!(screen.draw(app)[4], "            +  15.00%  leaf");
        press(app, "e");
        assert_eq!(screen.draw(app)[3], "+   80.00%     0.00%  [.] mid");
        press(app, "e");
        assert_eq!(screen.draw(app)[4], "              -  60.00%  leaf".replace('-', " "));
        press(app, "C");
        assert_eq!(app.lines.len(), 4);
        press(app, "E");
        assert!(app.lines.len() > 8, "{:?}", app.lines);
    });
}

#[test]
fn a_filter_leaves_rows_out_while_it_is_typed() {
    with_app(&[], |app, screen| {
        press(app, "/LEAF");
        let lines = screen.draw(app);
        assert_eq!(app.lines.len(), 2, "{lines:#?}");
        assert!(lines[23].starts_with("Only rows with: LEAF_"), "{lines:#?}");
        press(app, " help\n");
        assert_eq!(app.lines.len(), 1);
        assert!(screen.draw(app)[0].contains("only: LEAF help"));
        press(app, "/\x08\x08\x08\x08\x08xyz\n");
        assert!(screen.draw(app)[2].contains("no rows"));
        press(app, "\x1b");
        assert_eq!(app.lines.len(), 6);
        assert!(!app.is_done());
        press(app, "\x1b");
        assert!(app.is_done());
    });
}

#[test]
fn searching_goes_round_both_ways() {
    with_app(&["--sort", "sym"], |app, screen| {
        press(app, "foth\n");
        assert_eq!(app.line_text(app.selected), "[.] other");
        press(app, "\x1b");
        press(app, "fm\n");
        assert_eq!(app.selected, 0);
        press(app, "n");
        assert_eq!(app.selected, 1);
        press(app, "N");
        assert_eq!(app.selected, 0);
        press(app, "fnothing\n");
        assert_eq!(screen.draw(app)[23], "no line has \"nothing\"");
    });
}

#[test]
fn columns_children_direction_and_event_change() {
    with_app(&["--sort", "sym"], |app, screen| {
        press(app, "s");
        assert_eq!(screen.draw(app)[1], "  Children      Self  Command  Shared Object  Symbol");
        press(app, "ssss");
        assert_eq!(screen.draw(app)[1], "  Children      Self  Symbol");
        press(app, "c");
        let lines = screen.draw(app);
        assert_eq!(lines[1], "  Overhead  Symbol");
        assert!(lines[0].ends_with(", callers"), "{lines:#?}");
        assert_eq!(lines[2], "+   75.00%  [.] leaf");
        press(app, "g\n");
        assert_eq!(screen.draw(app)[3], "            -  75.00%  main");
        press(app, "\t");
        let lines = screen.draw(app);
        assert_eq!(lines[2], "+  100.00%  [.] fault");
        assert!(lines[0].contains("'event-1' (2 of 2)"), "{lines:#?}");
    });
}

#[test]
fn help_is_over_the_list_until_a_key() {
    with_app(&[], |app, screen| {
        press(app, "?");
        let text = screen.draw(app).join("\n");
        assert!(text.contains("find next") && text.contains("a note"), "{text}");
        press(app, "q");
        assert!(!app.is_done() && !app.help);
        press(app, "q");
        assert!(app.is_done());
    });
}

/// Whatever the size, and whatever was open when it changed.
#[test]
fn no_terminal_is_too_small() {
    with_app(&[], |app, _| {
        press(app, "E?");
        for (width, height) in [(1, 1), (2, 3), (10, 5), (40, 16), (300, 100)] {
            Screen::new(width, height).draw(app);
            press(app, "↓↓↓\n?");
            Screen::new(width, height).draw(app);
        }
    });
}

#[test]
fn the_selected_line_stays_in_sight() {
    with_app(&[], |app, _| {
        let mut screen = Screen::new(60, 6);
        press(app, "E");
        screen.draw(app);
        for _ in 0..app.lines.len() + 3 {
            press(app, "↓");
            screen.draw(app);
            assert!((app.top..app.top + app.height).contains(&app.selected));
        }
        assert_eq!(app.selected, app.lines.len() - 1);
    });
}

#[test]
fn without_colours_there_are_none() {
    with_app(&[], |app, screen| {
        press(app, "E");
        let coloured = |screen: &Screen| {
            let cells = &screen.terminal.backend().buffer().content;
            cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
        };
        screen.draw(app);
        assert!(coloured(screen));
        screen.colours = false;
        screen.draw(app);
        assert!(!coloured(screen));
    });
}

#[test]
fn an_empty_profile_is_shown_as_such() {
    let (profile, names) = fixture::profile(&[]);
    let args = fixture::arguments(&[]);
    let mut app = app(&profile, &names, &args);
    let mut screen = Screen::new(80, 24);
    press(&mut app, "\nEs\tgc↓n");
    assert!(screen.draw(&mut app)[0].starts_with("0 samples"));
}
