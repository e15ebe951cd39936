// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// The program that lists sockets and pipes; assets/build-bpf compiles it into assets/endpoints.bpf.o.
//
// `list` is called for each open file of each process while its iterator is read (Linux 5.11: a socket by its file). It writes a
// `struct row` for a connected internet socket, a unix socket, and an end of a pipe. It reads nothing of the processes' memory.
//
// What it shares with the other program is in kernel.bpf.h.

#include "../kernel.bpf.h"

static void *(*bpf_sock_from_file)(void *file) = (void *)162;

struct task_struct {
    struct task_struct *group_leader;
} RELOCATED;

struct super_block {
    u32 s_dev;
} RELOCATED;
struct inode {
    u16 i_mode;
    u64 i_ino;
    struct super_block *i_sb;
} RELOCATED;
struct file {
    u32 f_mode;
    struct inode *f_inode;
} RELOCATED;

struct ns_common {
    u32 inum;
} RELOCATED;
struct net {
    struct ns_common ns;
} RELOCATED;
typedef struct {
    struct net *net;
} RELOCATED possible_net_t;
struct in6_addr {
    u8 bytes[16];
};
struct sock_common {
    u32 skc_daddr;
    u32 skc_rcv_saddr;
    u16 skc_dport;
    u16 skc_num;
    u16 skc_family;
    possible_net_t skc_net;
    struct in6_addr skc_v6_daddr;
    struct in6_addr skc_v6_rcv_saddr;
} RELOCATED;
struct socket;
struct sock {
    struct sock_common __sk_common;
    u16 sk_protocol;
    struct socket *sk_socket;
} RELOCATED;
struct unix_sock {
    struct sock *peer;
} RELOCATED;
struct socket {
    struct file *file;
    struct sock *sk;
} RELOCATED;

struct bpf_iter__task_file {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
    u32 fd;
    struct file *file;
} RELOCATED;

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define S_IFMT 0170000
#define S_IFIFO 0010000
#define S_IFSOCK 0140000
#define FMODE_READ_WRITE 3

// endpoints.rs repeats the definitions that follow.
#define INET 1
#define UNIX 2
#define PIPE 3
struct row {
    u64 inode;
    // Of a unix socket: the inode of the socket it is connected to; 0: none.
    u64 peer;
    // Of an internet socket; IPv4 as mapped addresses.
    u8 local[16], remote[16];
    // The network namespace of a socket, the device of a pipe.
    u32 place;
    // In the pid namespace of the reader.
    u32 pid;
    u32 fd;
    u16 local_port, remote_port;
    u8 kind;
    // IPPROTO_TCP, IPPROTO_UDP, ...
    u8 protocol;
    // Open for reading: 1, for writing: 2.
    u8 mode;
    u8 unused[5];
};

static __attribute__((always_inline)) void map_ipv4(u8 *to, u32 address)
{
    to[10] = to[11] = 0xff;
    __builtin_memcpy(to + 12, &address, 4);
}

// Returns 0 for an internet socket that is not connected: it has no peer.
static __attribute__((always_inline)) int inet(struct sock *sk, struct row *row)
{
    u16 port = sk->__sk_common.skc_dport;

    if (!port)
        return 0;
    row->kind = INET;
    row->protocol = sk->sk_protocol;
    row->local_port = sk->__sk_common.skc_num;
    row->remote_port = __builtin_bswap16(port);
    if (sk->__sk_common.skc_family == AF_INET) {
        map_ipv4(row->local, sk->__sk_common.skc_rcv_saddr);
        map_ipv4(row->remote, sk->__sk_common.skc_daddr);
        return 1;
    }
    // A kernel can be built without IPv6.
    if (!__builtin_preserve_field_info(sk->__sk_common.skc_v6_daddr, 2))
        return 0;
    bpf_probe_read_kernel(row->local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
    bpf_probe_read_kernel(row->remote, 16, &sk->__sk_common.skc_v6_daddr);
    return 1;
}

// A connection that has not been accepted has no socket yet, and so no inode.
static __attribute__((always_inline)) void unix(struct sock *sk, struct row *row)
{
    struct sock *peer = 0;
    struct socket *socket = 0;
    struct file *file = 0;
    struct inode *inode = 0;

    row->kind = UNIX;
    bpf_probe_read_kernel(&peer, sizeof(peer), &((struct unix_sock *)sk)->peer);
    if (!peer)
        return;
    bpf_probe_read_kernel(&socket, sizeof(socket), &peer->sk_socket);
    if (!socket)
        return;
    bpf_probe_read_kernel(&file, sizeof(file), &socket->file);
    if (!file)
        return;
    bpf_probe_read_kernel(&inode, sizeof(inode), &file->f_inode);
    if (inode)
        bpf_probe_read_kernel(&row->peer, sizeof(row->peer), &inode->i_ino);
}

SECTION("iter/task_file")
int list(struct bpf_iter__task_file *context)
{
    struct task_struct *task = context->task;
    struct file *file = context->file;
    struct row row = {};
    struct socket *socket;
    struct sock *sk;
    u32 type, family;

    if (!task || !file)
        return 0;
    type = file->f_inode->i_mode & S_IFMT;
    if (type == S_IFIFO) {
        row.kind = PIPE;
        row.place = file->f_inode->i_sb->s_dev;
        row.mode = file->f_mode & FMODE_READ_WRITE;
    } else if (type == S_IFSOCK) {
        socket = bpf_sock_from_file(file);
        if (!socket)
            return 0;
        sk = socket->sk;
        if (!sk)
            return 0;
        family = sk->__sk_common.skc_family;
        if (family == AF_UNIX)
            unix(sk, &row);
        else if ((family != AF_INET && family != AF_INET6) || !inet(sk, &row))
            return 0;
        row.place = sk->__sk_common.skc_net.net->ns.inum;
    } else {
        return 0;
    }
    row.inode = file->f_inode->i_ino;
    row.fd = context->fd;
    row.pid = id_here(task->group_leader);
    // What does not fit is visited again by the next read.
    bpf_seq_write(context->meta->seq, &row, sizeof(row));
    return 0;
}

char terms[] SECTION("license") = "GPL";
