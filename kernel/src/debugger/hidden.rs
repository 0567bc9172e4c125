//! Names that IPython keeps in the notebook's namespace: no variables of the user's.

use serde_json::Value;

const NAMES: [&str; 26] = [
    "In",
    "Out",
    "_",
    "__",
    "___",
    "__annotations__",
    "__builtin__",
    "__builtins__",
    "__cached__",
    "__doc__",
    "__file__",
    "__loader__",
    "__name__",
    "__package__",
    "__session__",
    "__spec__",
    "_dh",
    "_exit_code",
    "_i",
    "_ih",
    "_ii",
    "_iii",
    "_oh",
    "exit",
    "get_ipython",
    "quit",
];

/// `_`, `_i3`, `Out` and the like.
pub fn is_hidden(name: &str) -> bool {
    let number = name.strip_prefix("_i").or_else(|| name.strip_prefix('_'));
    let numbered = number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    });
    numbered || NAMES.binary_search(&name).is_ok()
}

/// Take them out of a `variables` response.
pub fn hide(response: &mut Value) {
    if let Some(variables) = response["body"]["variables"].as_array_mut() {
        variables.retain(|variable| {
            let name = variable["name"].as_str().unwrap_or_default();
            let ipythons = name == "open"
                && variable["value"]
                    .as_str()
                    .is_some_and(|v| v.starts_with("<function open"));
            !ipythons && !is_hidden(name)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ipython_keeps_is_hidden_and_nothing_else() {
        assert!(NAMES.is_sorted());
        for name in ["In", "_", "_i", "_i12", "_7", "exit", "__name__"] {
            assert!(is_hidden(name), "{name}");
        }
        for name in ["x", "_x", "_ix", "_i1x", "i1", "Input", "__all__", "out"] {
            assert!(!is_hidden(name), "{name}");
        }
    }
}
