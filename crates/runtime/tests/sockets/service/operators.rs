//! What operators and programs ask a server for: health, metrics, what is told of models.

use super::{body, builders, eventually, hosted, http, start, work};
use hushnet_runtime::session::AnyPlan;
use hushnet_runtime::transport::{About, ConnectOptions, Server, ServerOptions};

#[test]
fn operators_have_a_listener_of_their_own() {
    let options = ServerOptions { admin: Some(("127.0.0.1".into(), 0)), ..ServerOptions::default() };
    let server = start(&options);
    let (public, admin) = (server.address(), server.admin_address().unwrap());
    work(&format!("hush://{public}/second"), &ConnectOptions::default(), 1);
    eventually("the session ends", || server.stats().active == 0);
    for page in
        ["/metrics", "/healthz", "/readyz", "/v2", "/v2/health/ready", "/v2/models/first", "/openapi.json"]
    {
        assert!(http(public, page, "").starts_with("HTTP/1.1 404"), "{page}");
        assert!(http(admin, page, "").starts_with("HTTP/1.1 200"), "{page}");
    }
    for address in [public, admin] {
        assert!(http(address, "/livez", "").ends_with("ok\n"));
    }
    assert!(http(admin, "/ws/first", "").starts_with("HTTP/1.1 404"));
    let rebound = http(admin, "/metrics", "Host: rebound.example:9765\r\n");
    assert!(rebound.starts_with("HTTP/1.1 421") && !rebound.contains("hushnet_"), "{rebound}");
    let text = http(admin, "/metrics", "");
    let stage = builders()[1].plan().stages()[1].name().to_owned();
    // In line once for the slot and once for the memory of the block.
    for line in [
        "hushnet_model_images_total{model=\"second\"} 3\n".to_owned(),
        "hushnet_model_sessions_total{model=\"second\",outcome=\"ok\"} 1\n".to_owned(),
        "hushnet_session_duration_seconds_count{model=\"second\"} 1\n".to_owned(),
        "hushnet_session_duration_seconds_bucket{model=\"first\",le=\"+Inf\"} 0\n".to_owned(),
        format!("hushnet_stage_duration_seconds_count{{model=\"second\",stage=\"{stage}\"}} 1\n"),
        "hushnet_session_size_bytes_count{model=\"second\",direction=\"sent\"} 1\n".to_owned(),
        "hushnet_line_wait_seconds_count 2\n".to_owned(),
        "hushnet_line_length_bucket{le=\"0\"} 2\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}{text}");
    }
    // Without a listener of their own, the port of clients tells no name of a model or a layer.
    let alone = start(&ServerOptions::default());
    work(&format!("hush://{}/second", alone.address()), &ConnectOptions::default(), 1);
    let text = http(alone.address(), "/metrics", "");
    assert!(
        text.contains("hushnet_sessions_total 1\n") && !text.contains("second") && !text.contains(&stage),
        "{text}"
    );
    let taken = ServerOptions { admin: Some(("127.0.0.1".into(), admin.port())), ..ServerOptions::default() };
    assert!(Server::start_models(vec![hosted("first", 0)], &taken).is_err());
}

/// Lines of the page as Prometheus reads them: families with one help, one type, known suffixes, buckets that only grow.
#[test]
fn metrics_are_what_prometheus_reads() {
    let options = ServerOptions { admin: Some(("127.0.0.1".into(), 0)), ..ServerOptions::default() };
    let server = start(&options);
    work(&format!("hush://{}/first", server.address()), &ConnectOptions::default(), 0);
    eventually("the session ends", || server.stats().active == 0);
    let answer = http(server.admin_address().unwrap(), "/metrics", "");
    let (mut families, mut now, mut last) =
        (std::collections::BTreeSet::new(), (String::new(), String::new()), 0.0);
    for line in answer.split_once("\r\n\r\n").unwrap().1.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "HELP", name, ..] => {
                assert!(families.insert(name.to_owned()) && name.starts_with("hushnet_"), "{line}");
            }
            ["#", "TYPE", name, kind] => {
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                now = (name.to_owned(), kind.to_owned());
            }
            _ => {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let value: f64 = value.parse().unwrap();
                let plain = name.split('{').next().unwrap();
                let suffix = plain.strip_prefix(now.0.as_str()).expect(line);
                assert_eq!(["_bucket", "_sum", "_count"].contains(&suffix), now.1 == "histogram", "{line}");
                if suffix == "_bucket" {
                    assert!(
                        value >= last || name.contains(&format!("le=\"{}\"", first_bound(&now.0))),
                        "{line}"
                    );
                    last = value;
                }
            }
        }
    }
    assert!(families.len() > 15, "{families:?}");
}

fn first_bound(family: &str) -> &'static str {
    match family {
        "hushnet_session_size_bytes" => "1000",
        "hushnet_line_length" => "0",
        _ => "0.001",
    }
}

#[test]
fn models_tell_their_public_part_in_the_words_of_the_inference_protocol() {
    let server = start(&ServerOptions::default());
    let page = |path: &str| http(server.address(), path, "");
    let told = body(&page("/v2/models/first"));
    let public = builders()[0].plan().public_part().unwrap();
    let public = AnyPlan::from_bytes(&public, &hushnet_runtime::PlanOptions::default()).unwrap();
    let ports: Vec<_> = public
        .inputs()
        .map(|(port, tensor)| {
            let shape: Vec<i64> = std::iter::once(-1).chain(tensor.shape.iter().map(|d| *d as i64)).collect();
            serde_json::json!({"name": port.name, "datatype": "FP64", "shape": shape})
        })
        .collect();
    assert_eq!(told["inputs"], serde_json::json!(ports));
    assert_eq!(
        (told["name"].as_str(), told["platform"].as_str()),
        (Some("first"), Some("hushnet-client-aided"))
    );
    let keys: Vec<_> = told.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["inputs", "name", "outputs", "platform"],
        "what leaves is listed in docs/wire-protocol.md"
    );
    assert_eq!(About::from(&public), About::from(&AnyPlan::ClientAided(builders()[0].plan())));
    assert_eq!(body(&page("/v2/models/first/ready"))["ready"], true);
    assert_eq!(body(&page("/v2/health/live"))["live"], true);
    assert_eq!(body(&page("/v2/health/ready"))["ready"], true);
    assert_eq!(body(&page("/v2"))["name"], "hushnet");
    for path in ["/v2/models/none", "/v2/models/none/ready"] {
        let answer = page(path);
        assert!(answer.starts_with("HTTP/1.1 404") && !answer.contains("second"), "{answer}");
        assert!(body(&answer)["error"].as_str().unwrap().contains("no such model"));
    }
    // Every path of the document is there, and answers what it says.
    let document = body(&page("/openapi.json"));
    let paths = document["paths"].as_object().unwrap();
    assert_eq!((paths.len(), document["openapi"].as_str()), (9, Some("3.1.0")));
    for (path, what) in paths {
        let answer = page(&path.replace("{model}", "first"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}");
        let content = &what["get"]["responses"]["200"]["content"];
        let Some(schema) = content.get("application/json").map(|c| &c["schema"]) else { continue };
        let schema = match schema.get("$ref").and_then(|r| r.as_str()) {
            Some(name) => document.pointer(name.trim_start_matches('#')).unwrap(),
            None => schema,
        };
        let answer = body(&answer);
        for name in schema["required"].as_array().unwrap() {
            assert!(answer.get(name.as_str().unwrap()).is_some(), "{path}: {name}");
        }
        assert_eq!(
            answer.as_object().unwrap().len(),
            schema["properties"].as_object().unwrap().len(),
            "{path}"
        );
    }
}
