package api

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf describes the process on the other side.
func peerOf(conn net.Conn) peer {
	of, ok := conn.(*net.UnixConn)
	if !ok {
		return "unix"
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return "unix"
	}
	var who *unix.Ucred
	if raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return "unix"
	}
	return peer(fmt.Sprintf("unix uid=%d pid=%d", who.Uid, who.Pid))
}
