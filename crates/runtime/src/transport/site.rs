//! Files of a page for visitors, on the port of clients: a list that was read when the server started. A request is compared with its names and
//! opens no file.

use super::shared::Shared;
use crate::error::TransportError;
use axum::body::Bytes;
use axum::http::{header, HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::Router;
use std::sync::Arc;

/// One file of the page that a server shows to browsers.
#[derive(Clone, Debug)]
pub struct WebFile {
    /// Where it is asked for: `/`, or `/` and names of letters, digits, `.`, `_`, `-` with `/` between them.
    pub path: String,
    /// Its media type.
    pub media: String,
    /// A tag that changes when it does; letters and digits.
    pub tag: String,
    /// What it holds, compressed with gzip.
    pub gzip: Vec<u8>,
}

/// Says what a page may do: only what came from here, no script in the text, no frames. The last two isolate it, so that it has shared memory.
const RULES: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; style-src 'self'; \
         img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
];

/// A file as it is answered.
struct Ready {
    media: HeaderValue,
    tag: HeaderValue,
    gzip: Bytes,
}

impl Ready {
    fn new(file: &WebFile) -> Result<Self, TransportError> {
        let wrong =
            || TransportError::Io(format!("a file of the page has no fit name or type: {}", file.path));
        let name = |n: &str| {
            n.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) && n != "." && n != ".."
        };
        let fits = |p: &str| p.is_empty() || p.split('/').all(|n| !n.is_empty() && name(n));
        if !file.path.strip_prefix('/').is_some_and(fits) || !name(&file.tag) {
            return Err(wrong());
        }
        let value = |text: &str| HeaderValue::try_from(text).map_err(|_| wrong());
        let tag = value(&format!("\"{}\"", file.tag))?;
        Ok(Self { media: value(&file.media)?, tag, gzip: Bytes::from(file.gzip.clone()) })
    }

    fn answer(&self, asked: &HeaderMap) -> Response {
        let known = asked.get(header::IF_NONE_MATCH) == Some(&self.tag);
        let mut answer =
            if known { StatusCode::NOT_MODIFIED.into_response() } else { self.gzip.clone().into_response() };
        let headers = answer.headers_mut();
        for (name, value) in RULES {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(header::ETAG, self.tag.clone());
        if !known {
            headers.insert(header::CONTENT_TYPE, self.media.clone());
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }
}

/// The files, each at its place.
///
/// # Errors
/// [`TransportError::Io`] for a path, a type or a tag that is none, or a path that comes twice.
pub(super) fn routes(files: &[WebFile]) -> Result<Router<Arc<Shared>>, TransportError> {
    let mut seen = std::collections::HashSet::new();
    files.iter().try_fold(Router::new(), |router, file| {
        let ready = Arc::new(Ready::new(file)?);
        if !seen.insert(&file.path) {
            return Err(TransportError::Io(format!("a file of the page comes twice: {}", file.path)));
        }
        let answer = move |asked: HeaderMap| async move { ready.answer(&asked) };
        Ok(router.route(&file.path, get(answer)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> WebFile {
        WebFile { path: path.into(), media: "text/html".into(), tag: "a1".into(), gzip: vec![1, 2] }
    }

    #[test]
    fn only_plain_paths_are_taken_and_each_once() {
        for path in ["/", "/a.js", "/wasm/a_b-c.wasm"] {
            assert!(routes(&[file(path)]).is_ok(), "{path}");
        }
        for path in ["", "a.js", "//", "/a/", "/../a", "/a/./b", "/{x}", "/*", "/a b", "/%2e"] {
            assert!(routes(&[file(path)]).is_err(), "{path}");
        }
        assert!(routes(&[file("/a"), file("/a")]).is_err());
        assert!(routes(&[WebFile { media: "a\nb".into(), ..file("/") }]).is_err());
    }

    #[test]
    fn answers_isolate_the_page_and_are_not_sent_twice() {
        let ready = Ready::new(&file("/")).unwrap();
        let first = ready.answer(&HeaderMap::new());
        assert_eq!(
            (first.status(), &first.headers()["content-encoding"]),
            (StatusCode::OK, &HeaderValue::from_static("gzip"))
        );
        let mut asked = HeaderMap::new();
        asked.insert(header::IF_NONE_MATCH, first.headers()["etag"].clone());
        let second = ready.answer(&asked);
        assert_eq!(second.status(), StatusCode::NOT_MODIFIED);
        for answer in [first, second] {
            let text = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
            assert_eq!(
                text("cross-origin-opener-policy") + &text("cross-origin-embedder-policy"),
                "same-originrequire-corp"
            );
            assert!(
                !text("content-security-policy").contains("unsafe-inline")
                    && text("x-content-type-options") == "nosniff"
            );
        }
    }
}
