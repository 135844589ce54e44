//! A sentinel names the new master when the old one is gone.

use redis::sentinel::Sentinel;
use tollgate_testing::store::program::for_each_server;
use tollgate_testing::store::sentinel::{NAME, Watched};

#[test]
fn a_sentinel_names_the_new_master() {
    for_each_server(async |program| {
        let watched = Watched::start(program);
        let mut sentinel = Sentinel::build(watched.urls()).unwrap();
        let mut connection = sentinel
            .async_master_for(NAME, None)
            .await
            .unwrap()
            .get_multiplexed_async_connection()
            .await
            .unwrap();
        assert_eq!(redis::cmd("INCR").arg("hits").query_async::<i64>(&mut connection).await.unwrap(), 1);
        let killed = watched.kill_master();
        let now = watched.wait_for_failover(killed);
        assert!(now != killed && watched.master().address() == now);
        let client = sentinel.async_master_for(NAME, None).await.unwrap();
        assert_eq!(client.get_connection_info().addr().to_string(), now.to_string());
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("INCR").arg("hits").query_async::<i64>(&mut connection).await.unwrap();
    });
}
