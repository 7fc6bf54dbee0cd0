//! Preparations that a server keeps: set-ups of clients outlive it, and nothing else of them does.

use super::coefficients::classifier;
use super::stored::{negated, network, options, whole, Temporary};
use super::*;
use crate::two_party::prepared::{PreparationStore, QUOTA};
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

fn kept(folder: &Temporary) -> PreparationStore {
    PreparationStore { path: folder.0.clone(), age: Duration::from_secs(3600) }
}

/// A server that was started anew.
fn started(net: &Net, store: &PreparationStore) -> TwoPartyModel {
    let model = TwoPartyModel::announced(&plan_of(net).unwrap(), Compute::default(), Some(store)).unwrap();
    model.fill(1 << 30).unwrap();
    model
}

/// Bytes of set-ups that a session of a client with this folder is sent; its answers are right.
fn sent(net: &mut Net, model: &TwoPartyModel, folder: &Temporary) -> usize {
    super::stored::session(net, model, Some(&folder.0))
}

fn name(model: &TwoPartyModel) -> String {
    let public = TwoPartyPlan::from_bytes(model.public_part(), &PlanOptions::default()).unwrap();
    public.preparation().unwrap().to_owned()
}

fn preparations(folder: &Temporary) -> Vec<PathBuf> {
    folder.files().into_iter().filter(|f| f.extension().is_some_and(|e| e == "preparation")).collect()
}

#[test]
fn a_server_started_anew_goes_on_with_the_set_ups_of_its_clients() {
    let (client, server) = (Temporary::new("client"), Temporary::new("server"));
    let (mut net, mut other, store) = (network(41), negated(network(41)), kept(&server));
    let first = started(&net, &store);
    let all = whole(&first);
    assert_eq!(sent(&mut net, &first, &client), all);
    drop(first);
    let again = started(&net, &store);
    assert_eq!(sent(&mut net, &again, &client), 0);
    // Other weights behind the same public plan never meet the same seed.
    let foreign = started(&other, &store);
    assert_ne!(name(&foreign), name(&again));
    assert_eq!(sent(&mut other, &foreign, &client), all);
    assert_eq!(preparations(&server).len(), 2);
    // Nor does a server without the folder.
    let model = TwoPartyModel::new(&plan_of(&net).unwrap(), Compute::default()).unwrap();
    assert_ne!(name(&model), name(&again));
    // A plan without set-ups has nothing to keep.
    let nowhere = Temporary::new("nowhere");
    let plain = TwoPartyModel::announced(
        &plan_of(&classifier(5)).unwrap(),
        Compute::default(),
        Some(&kept(&nowhere)),
    );
    assert!(plain.is_ok() && !nowhere.0.exists());
    #[cfg(unix)]
    for file in preparations(&server) {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(options(&client.0).setups.is_some());
}

#[test]
fn what_is_damaged_is_removed_and_made_anew() {
    let server = Temporary::new("damaged");
    let (net, store) = (network(42), kept(&server));
    let first = name(&started(&net, &store));
    let spoils: [fn(&mut Vec<u8>); 3] = [|b| b[50] ^= 1, |b| b.truncate(60), Vec::clear];
    for spoil in spoils {
        let before = name(&started(&net, &store));
        let [file] = preparations(&server).try_into().unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        spoil(&mut bytes);
        std::fs::write(&file, &bytes).unwrap();
        let after = name(&started(&net, &store));
        assert!(after != before && after != first);
        assert_eq!(name(&started(&net, &store)), after);
    }
    // What a killed server has not finished is no hindrance.
    std::fs::write(server.0.join("new.part"), b"half").unwrap();
    std::fs::remove_file(&preparations(&server)[0]).unwrap();
    let after = name(&started(&net, &store));
    assert_eq!(name(&started(&net, &store)), after);
}

#[test]
fn a_folder_that_cannot_be_written_costs_the_next_start_its_set_ups_and_nothing_else() {
    let (client, server) = (Temporary::new("writer"), Temporary::new("full"));
    let (mut net, store) = (network(43), kept(&server));
    // Nobody can write where a folder stands.
    std::fs::create_dir_all(server.0.join("new.part")).unwrap();
    let model = started(&net, &store);
    assert_eq!(sent(&mut net, &model, &client), whole(&model));
    assert_eq!(sent(&mut net, &model, &client), 0);
    assert!(preparations(&server).is_empty());
    // A folder that is none is an error of whoever named it.
    let file = server.0.join("file");
    File::create(&file).unwrap();
    let none = PreparationStore { path: file, age: Duration::from_secs(1) };
    let refused = TwoPartyModel::announced(&plan_of(&net).unwrap(), Compute::default(), Some(&none));
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("--store"), "{error}");
}

#[test]
fn old_preparations_go_and_all_stay_within_the_quota() {
    let server = Temporary::new("quota");
    let (net, store) = (network(44), kept(&server));
    let first = name(&started(&net, &store));
    let stranger = |digit: &str, bytes: u64, age: u64| {
        let file = File::create(server.0.join(format!("{}.preparation", digit.repeat(64)))).unwrap();
        file.set_len(bytes).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    };
    stranger("a", 104, 7200);
    stranger("b", QUOTA, 60);
    // Its own is younger than an hour, whatever else is there; what nobody used for longer goes.
    assert_eq!(name(&started(&net, &store)), first);
    assert_eq!(preparations(&server).len(), 2);
    // A new one drives out what was used longest ago.
    started(&negated(network(44)), &store);
    assert_eq!(preparations(&server).len(), 2);
    assert_eq!(name(&started(&net, &store)), first);
}
