package process

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

// Serve is the whole main of a plugin. It ends the process when the router stops the plugin or
// ends. It returns only if the program was not started by a router, or cannot listen. The program
// should end then.
func Serve(p Plugin) {
	server := NewServer(p)
	// go-plugin replaces stdout and stderr by pipes and forwards their content. The end of it is
	// lost when the process ends, so the router reads the original files too.
	stdout, stderr := os.Stdout, os.Stderr
	server.configuring = func() { os.Stdout, os.Stderr = stdout, stderr }
	var once sync.Once
	end := func() {
		once.Do(func() {
			server.Close()
			os.Exit(0) //nolint:forbidigo // this is the end of a plugin
		})
	}
	if os.Getenv(pluginv1.CookieKey) == pluginv1.CookieValue {
		go untilTold(end)
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: pluginv1.CookieKey, MagicCookieValue: pluginv1.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{pluginv1.Version: {"handler": &served{server: server}}},
		Logger:           hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			if n, err := strconv.Atoi(os.Getenv(pluginv1.MaxMessageKey)); err == nil && n > 0 {
				opts = append(opts, grpc.MaxRecvMsgSize(n))
			}
			return grpc.NewServer(opts...)
		},
	})
}

// untilTold waits for SIGTERM or for the end of the standard input. The router holds the other end
// while it wants the plugin to run. If the router is killed, the system closes it.
func untilTold(end func()) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(gone)
	}()
	select {
	case <-told:
	case <-gone:
	}
	end()
}

// served implements the plugin interface of go-plugin.
type served struct {
	plugin.NetRPCUnsupportedPlugin

	server *Server
}

var _ plugin.GRPCPlugin = (*served)(nil)

// GRPCServer implements plugin.GRPCPlugin.
func (s *served) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	s.server.Register(g)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin. It is not used.
func (*served) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}
