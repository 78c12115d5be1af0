package api

import "net"

// Accept sets the connection's remote address to the process on the other side, if the system
// reports it.
func (s *socket) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return peerConn{conn, peerOf(conn)}, nil
}

// peerConn is a connection over a socket.
type peerConn struct {
	net.Conn

	peer peer
}

// RemoteAddr implements [net.Conn].
func (c peerConn) RemoteAddr() net.Addr { return c.peer }

// peer describes the process on the other side of a socket.
type peer string

// Network implements [net.Addr].
func (peer) Network() string { return "unix" }

// String implements [net.Addr].
func (p peer) String() string { return string(p) }
