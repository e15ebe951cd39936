//! The module of a function, by the path of its file.

use crate::model::vocabulary::text::{NAME_CAP, clean};

/// Folders that hold modules; what is behind the last of them in a path is a module's name.
const INSTALLED: [&str; 2] = ["site-packages/", "dist-packages/"];
const STANDARD: &str = "/python3.";

/// Returns the dotted name of the module whose file this is; `None` where the file says none.
pub fn module_of(file: &str) -> Option<String> {
    if let Some(inner) = file.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
        let module = inner.strip_prefix("frozen ").unwrap_or(file);
        return if inner.is_empty() { None } else { cleaned(module) };
    }
    let path = match behind_folder(file) {
        Some(path) => path,
        None => {
            let mut parts = file.rsplit('/').filter(|part| !part.is_empty());
            let last = parts.next()?;
            // A package is its folder.
            match (stem(last), parts.next()) {
                ("__init__", Some(folder)) => folder,
                _ => last,
            }
        }
    };
    let path = stem(path);
    let path = path.strip_suffix("/__init__").unwrap_or(path).replace('/', ".");
    cleaned(&path)
}

fn cleaned(module: &str) -> Option<String> {
    let module = clean(module, NAME_CAP);
    (!module.is_empty()).then(|| module.into_owned())
}

fn stem(path: &str) -> &str {
    path.strip_suffix(".py").or_else(|| path.strip_suffix(".pyc")).unwrap_or(path)
}

/// Returns what is behind the last folder that holds modules.
fn behind_folder(file: &str) -> Option<&str> {
    let installed = INSTALLED.iter().filter_map(|folder| {
        let at = file.rfind(folder)?;
        let whole = at == 0 || file[..at].ends_with('/');
        whole.then_some(at + folder.len())
    });
    let standard = file.rmatch_indices(STANDARD).find_map(|(at, _)| {
        // lib/python3.N/ or lib64/python3.N/
        let folder = file[..at].rsplit('/').next();
        let behind = at + STANDARD.len();
        let digits = file[behind..].find(|c: char| !c.is_ascii_digit())?;
        let end = behind + digits;
        let library = matches!(folder, Some("lib" | "lib64"));
        // `t`: built without a GIL.
        let rest = file[end..].strip_prefix('t').unwrap_or(&file[end..]);
        (library && digits > 0 && rest.starts_with('/')).then(|| file.len() - rest.len() + 1)
    });
    installed.chain(standard).max().map(|at| &file[at..]).filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_names_a_module() {
        for (file, module) in [
            ("/usr/lib/python3.11/json/decoder.py", Some("json.decoder")),
            ("/usr/lib/python3.11/json/__init__.py", Some("json")),
            ("/root/.pyenv/versions/3.8.18/lib/python3.8/threading.py", Some("threading")),
            ("/opt/py/lib64/python3.13t/asyncio/runners.py", Some("asyncio.runners")),
            (
                "/app/.venv/lib/python3.12/site-packages/django/db/models/query.py",
                Some("django.db.models.query"),
            ),
            ("/usr/lib/python3/dist-packages/yaml/__init__.py", Some("yaml")),
            ("/srv/site-packages/a/lib/python3.9/b.py", Some("b")),
            ("/app/shop/views.py", Some("views")),
            ("/app/shop/__init__.py", Some("shop")),
            ("__init__.py", Some("__init__")),
            ("script", Some("script")),
            ("/app/my-site-packages/x.py", Some("x")),
            ("/app/python3.9/y.py", Some("y")),
            ("/app/lib/python3./z.py", Some("z")),
            ("/usr/lib/python311.zip/foo/bar.py", Some("bar")),
            ("<string>", Some("<string>")),
            ("<frozen importlib._bootstrap>", Some("importlib._bootstrap")),
            ("<ipython-input-3-abc>", Some("<ipython-input-3-abc>")),
            ("<>", None),
            ("", None),
            ("/", None),
            ("/usr/lib/python3.11/", Some("python3.11")),
        ] {
            assert_eq!(module_of(file).as_deref(), module, "{file}");
        }
    }

    proptest! {
        #[test]
        fn any_path_gives_clean_text(file in "(/|lib|python3\\.|[0-9]|site-packages|__init__|\\.py|<|>|\\PC|\u{202e}|é){0,12}") {
            if let Some(module) = module_of(&file) {
                prop_assert!(!module.is_empty());
                let clean = module.len() <= NAME_CAP && !module.contains('\u{202e}');
                prop_assert!(clean);
            }
        }
    }
}
