#!/bin/bash
# Servers at rest and at work: which of their threads does sampletop call idle? For a maintainer, as
# root on Debian with redis-server, nginx-core, postgresql, mariadb-server, apache2, varnish, bind9,
# erlang-base and golang-go. Prints one line for each thread: what it does, what it is called, the
# server, the thread.
#
#   tests/idle_corpus/servers.sh [SAMPLETOP]
set -euo pipefail
sampletop=$(realpath "${1:-target/release/sampletop}")
folder=$(mktemp -d)
pids=()
# Servers that SIGINT does not end.
others=()
trap 'kill -INT "${pids[@]}" 2>/dev/null || true; kill "${others[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
chmod 755 "$folder"

# Names of threads in a profile; $2 is a filter of `go tool pprof`.
threads() {
    go tool pprof -tags -tagshow='^tid$' "$2" "$1" 2>/dev/null | grep -oE '[0-9]+$' | sort -u || true
}

# watch TRUTH SERVER PID...: the truth is that of all threads of these processes.
watch() {
    local truth=$1 server=$2 pid tid idle file=$folder/profile.pb.gz
    shift 2
    for pid in "$@"; do
        "$sampletop" record --idle -p "$pid" -d 2s -o "$file" >/dev/null
        idle=$(threads "$file" -tagfocus=idle)
        for tid in $(ls "/proc/$pid/task"); do
            if grep -qx "$tid" <<<"$idle"; then called=idle; else called=busy; fi
            echo "$truth $called $server $(cat "/proc/$pid/task/$tid/comm")"
        done
    done
}

# Redis: its event loop, threads of the background (bio), jemalloc's.
redis-server --port 0 --unixsocket "$folder/redis" --io-threads 4 --io-threads-do-reads yes --dir "$folder" \
    --appendonly yes >/dev/null &
pids+=($!)
until [ -S "$folder/redis" ]; do sleep 0.1; done
redis-cli -s "$folder/redis" set a 1 >/dev/null
watch rest redis "${pids[-1]}"

# nginx with a pool of threads.
mkdir "$folder/www" "$folder/tmp"
cat >"$folder/nginx.conf" <<END
daemon off; pid $folder/nginx.pid; error_log $folder/error.log; worker_processes 1;
thread_pool default threads=4;
events { worker_connections 64; }
http { access_log off; aio threads; server { listen unix:$folder/nginx; root $folder/www; } }
END
nginx -c "$folder/nginx.conf" 2>/dev/null &
pids+=($!)
until [ -S "$folder/nginx" ]; do sleep 0.1; done
head -c 1000000 /dev/zero >"$folder/www/a"
watch rest nginx $(pgrep -P "${pids[-1]}") "${pids[-1]}"

# PostgreSQL: its processes at rest, a session without a query, one that sleeps in a query, and one
# that waits there for a lock.
tools=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
mkdir "$folder/data" "$folder/socket"
chown postgres "$folder" "$folder/data" "$folder/socket"
as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups)
"${as_postgres[@]}" "$tools/initdb" -D "$folder/data" -A trust >/dev/null
"${as_postgres[@]}" "$tools/postgres" -D "$folder/data" -k "$folder/socket" -c listen_addresses= 2>/dev/null &
server=$!
pids+=("$server")
session() { "${as_postgres[@]}" "$tools/psql" -h "$folder/socket" -d postgres -qAt "$@"; }
until session -c 'select 1' >/dev/null 2>&1; do sleep 0.2; done
session -c 'create table t (a int)' >/dev/null
before=$(pgrep -P "$server")
watch rest postgres "$server" $before
added() { comm -13 <(sort <<<"$before") <(pgrep -P "$server" | sort); }
mkfifo "$folder/input"
session <"$folder/input" >/dev/null &
exec 9>"$folder/input"
echo 'begin; lock table t;' >&9
until added | grep -q .; do sleep 0.1; done
sleep 1
holder=$(added)
watch rest postgres-session $holder
session -c 'select pg_sleep(60)' >/dev/null 2>&1 &
session -c 'select * from t' >/dev/null 2>&1 &
sleep 1
watch job postgres-query $(added | grep -vx "$holder")
exec 9>&-

# MariaDB: its threads at rest, a client without a query, one that sleeps in a query, and one that
# waits there for a row.
mkdir "$folder/mariadb"
chown mysql "$folder/mariadb"
mariadb-install-db --user=mysql --datadir="$folder/mariadb" >/dev/null 2>&1
mariadbd --user=mysql --datadir="$folder/mariadb" --socket="$folder/mariadb/socket" --skip-networking 2>/dev/null &
server=$!
others+=("$server")
client() { mariadb -S "$folder/mariadb/socket" "$@"; }
until client -e 'select 1' >/dev/null 2>&1; do sleep 0.2; done
client -e 'create database d; create table d.t (a int primary key) engine=innodb; insert into d.t values (1)'
watch rest mariadb "$server"
# From here on each client has a thread of its own.
client -e 'set global thread_cache_size = 0'
clients() { client -Ne 'select tid from information_schema.processlist where db = "d" and info is not null'; }
client d -e 'begin; select a from t for update; select sleep(60)' >/dev/null 2>&1 &
sleep 1
client d -e 'delete from t' >/dev/null 2>&1 &
sleep 1
"$sampletop" record --idle -p "$server" -d 2s -o "$folder/profile.pb.gz" >/dev/null
idle=$(threads "$folder/profile.pb.gz" -tagfocus=idle)
[ "$(clients | wc -l)" = 2 ] || { echo "the two clients have not two threads" >&2; exit 1; }
for tid in $(clients); do
    if grep -qx "$tid" <<<"$idle"; then called=idle; else called=busy; fi
    echo "job $called mariadb-query $tid"
done

# Apache with workers, behind Varnish.
mkdir "$folder/logs" "$folder/varnish"
cat >"$folder/apache.conf" <<END
ServerRoot $folder
PidFile $folder/apache.pid
Listen 127.0.0.1:48081
ServerName localhost
User www-data
Group www-data
ErrorLog $folder/logs/error
DocumentRoot $folder/www
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
END
apache2 -f "$folder/apache.conf" -DFOREGROUND &
pids+=($!)
until [ -s "$folder/apache.pid" ]; do sleep 0.1; done
sleep 1
watch rest apache "${pids[-1]}" $(pgrep -P "${pids[-1]}")
varnishd -F -a 127.0.0.1:48082 -b 127.0.0.1:48081 -n "$folder/varnish" >/dev/null 2>&1 &
pids+=($!)
sleep 3
watch rest varnish "${pids[-1]}" $(pgrep -P "${pids[-1]}")

# BIND and Erlang.
cat >"$folder/named.conf" <<END
options { directory "$folder/www"; pid-file none; listen-on port 48053 { 127.0.0.1; }; listen-on-v6 { none; }; };
controls { };
END
named -f -c "$folder/named.conf" 2>/dev/null &
pids+=($!)
erl +Bi -noshell -eval 'timer:sleep(infinity).' &
others+=($!)
sleep 2
watch rest bind "${pids[-1]}"
watch rest erlang "${others[-1]}"
