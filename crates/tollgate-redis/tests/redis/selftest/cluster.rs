//! A cluster answers MOVED and ASK, and promotes the replica of a dead master. A client follows
//! these changes.

use redis::RedisResult;
use redis::cluster::ClusterClient;
use tollgate_testing::store::cluster::Cluster;
use tollgate_testing::store::program::for_each_server;
use tollgate_testing::store::wait::until_async;

/// Splits a server's error into its error word and the rest: `MOVED`, `12182 127.0.0.1:13000`.
fn refusal(answer: RedisResult<i64>) -> (String, String) {
    let error = answer.unwrap_err();
    (error.code().unwrap_or_default().to_owned(), error.detail().unwrap_or_default().to_owned())
}

#[test]
fn slots_are_moved_masters_are_replaced_and_a_client_follows() {
    for_each_server(async |program| {
        let cluster = Cluster::start(program);
        let client = ClusterClient::new(cluster.urls()).unwrap();
        let mut connection = client.get_async_connection().await.unwrap();
        let mut count = redis::cmd("INCR").arg("hits").to_owned();
        let count = &mut count;
        assert_eq!(count.query_async::<i64>(&mut connection).await.unwrap(), 1);
        assert_eq!(cluster.master_of("hits").ask::<i64>(&["GET", "hits"]), 1);

        // In the middle of the move, a moved key is requested from the new master, after ASKING.
        let moving = cluster.begin_move_of("hits");
        cluster.migrate(moving, "hits");
        let (word, detail) = refusal(cluster.node(moving.from).try_ask(&["INCR", "hits"]));
        assert_eq!((&*word, detail), ("ASK", format!("{} {}", moving.slot, moving.to)));
        assert_eq!(count.query_async::<i64>(&mut connection).await.unwrap(), 2);
        cluster.finish_move(moving);
        let (word, detail) = refusal(cluster.node(moving.from).try_ask(&["INCR", "hits"]));
        assert_eq!((&*word, detail), ("MOVED", format!("{} {}", moving.slot, moving.to)));
        assert_eq!(cluster.master_of("hits").address(), moving.to);
        assert_eq!(count.query_async::<i64>(&mut connection).await.unwrap(), 3);
        let again = cluster.move_slot_of("hits");
        assert_eq!(again.from, moving.to);
        assert_eq!(count.query_async::<i64>(&mut connection).await.unwrap(), 4);

        // A graceful failover loses nothing.
        let now = cluster.fail_over("hits");
        assert_ne!(now, again.to);
        assert_eq!(count.query_async::<i64>(&mut connection).await.unwrap(), 5);

        // The old master is now a replica of the new master. It becomes the master again when the
        // new master is killed.
        cluster.wait_until_whole();
        let killed = cluster.kill_master_of("hits");
        assert_eq!(cluster.wait_for_failover("hits", killed), again.to);
        until_async("the client follows", async || count.query_async::<i64>(&mut connection).await.is_ok())
            .await;
        cluster.node(killed).restart();
        cluster.wait_until_whole();
        assert_eq!(cluster.replica_of("hits").address(), killed);
    });
}
