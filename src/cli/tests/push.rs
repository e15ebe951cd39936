//! Where reports are pushed.

use super::*;
use crate::config::{Push, Secret, Token};

#[test]
fn a_report_is_pushed_with_what_it_needs() {
    let push = |surroundings: &Surroundings, line: &str| {
        on(surroundings, &format!("report -p 7 {line}")).output.push
    };
    assert_eq!(push(&PIPE, ""), None);
    let plain = push(&PIPE, "--push https://p.example").expect("it is pushed");
    let expected = Push {
        endpoint: "https://p.example/ingest".into(),
        token: None,
        tenant: None,
        labels: vec![],
        spool: None,
        spool_bytes: 64 << 20,
        alone: true,
    };
    assert_eq!(plain, expected);
    let all = "--push-label a=b --push-label service_name=shop --push-tenant t --push-spool /s --push-spool-bytes 1M -o r.log";
    let full = push(&PIPE, &format!("--push https://p.example --push-token-file /t {all}"));
    let labels = [("a", "b"), ("service_name", "shop")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let expected = Push {
        token: Some(Token::File("/t".into())),
        tenant: Some("t".into()),
        labels: labels.into(),
        spool: Some("/s".into()),
        spool_bytes: 1 << 20,
        alone: false,
        ..expected
    };
    assert_eq!(full, Some(expected));
    // `-o -` writes to standard output as well.
    assert!(
        !push(&PIPE, "--push https://p.example -o - --max-lines 5").expect("it is pushed").alone
    );
    // A server's time line needs more points than a person.
    let every = |line: &str| match on(&PIPE, &format!("report -p 7 {line}")).mode {
        Mode::Report(reports) => reports.every,
        mode => panic!("{mode:?}"),
    };
    assert_eq!(every("--push https://p.example"), Some(Duration::from_secs(60)));
    assert_eq!(every("--push https://p.example --every 15m"), Some(Duration::from_secs(900)));
}

#[test]
fn a_token_is_of_the_environment_or_a_file_and_goes_nowhere_in_the_open() {
    let with = |token: &str| Surroundings { push_token: Some(token.into()), ..PIPE };
    let line = "report -p 7 --push https://p.example";
    let config = on(&with(" s3cret\n"), line);
    let token = config.output.push.as_ref().expect("it is pushed").token.clone();
    assert_eq!(token, Some(Token::Text(Secret("s3cret".into()))));
    assert!(!format!("{config:?}").contains("s3cret"));
    let token = on(&with("s3cret"), &format!("{line} --push-token-file t"))
        .output
        .push
        .expect("it is pushed")
        .token;
    assert_eq!(token, Some(Token::File("t".into())));
    for bad in ["", "two words", "\u{e9}"] {
        assert!(refused(&with(bad), line).contains("SAMPLETOP_PUSH_TOKEN is no token"), "{bad}");
    }
    // Without `--push` the variable is ignored.
    on(&with(""), "report -p 7");
    let clear = refused(&with("s3cret"), "report -p 7 --push http://p.example");
    assert!(clear.contains("https://") && !clear.contains("s3cret"), "{clear}");
    assert!(
        refused(&PIPE, "report -p 7 --push http://p.example --push-token-file t")
            .contains("https://")
    );
    on(&with("s3cret"), "report -p 7 --push http://127.0.0.1:4040");
    on(&PIPE, "report -p 7 --push http://p.example");
}

#[test]
fn a_push_that_cannot_be_meant_is_refused() {
    let refusals = [
        ("--push p.example", "is no address"),
        ("--push https://me:s3cret@p.example", "--push-token-file"),
        ("--push https://p.example --secure", "--secure"),
        ("--push https://p.example --cumulative", "--cumulative"),
        ("--push https://p.example --format json", "-o FILE"),
        ("--push https://p.example --max-lines 5", "-o FILE"),
        ("--push https://p.example --push-label a", "region=eu"),
        ("--push https://p.example --push-label a=b --push-label a=c", "twice"),
        ("--push https://p.example --push-label group=x", "take another name"),
        ("--push https://p.example --push-tenant=", "--push-tenant"),
        ("--push https://p.example --push-spool=", "--push-spool"),
        ("--push https://p.example --push-spool-bytes 0", "--push-spool-bytes 0"),
        ("--push https://p.example --push-token-file=", "--push-token-file"),
        ("--push-label a=b", "without `--push URL`"),
        ("--push-spool-bytes 1M", "without `--push URL`"),
    ];
    for (line, words) in refusals {
        let sentence = refused(&PIPE, &format!("report -p 7 {line}"));
        assert!(sentence.contains(words) && !sentence.contains("s3cret"), "{line}: {sentence}");
    }
    assert!(
        refused(&PIPE, "record -p 7 --push https://p.example")
            .contains("does nothing for `record`")
    );
    assert!(refused(&PIPE, "record -p 7 --push-label a=b").contains("does nothing for `record`"));
}
