package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/plugins/process/internal/child"
	pluginv1 "github.com/deltarouter/deltarouter/sdk/proto/plugin/v1"
)

const (
	// overhead is the part of a message that limits.input and limits.output do not count.
	overhead = 64 << 10
	// service is the name of a plugin in health checks.
	service = "plugin"
)

// process is a running and configured plugin.
type process struct {
	s      *settings
	child  *child.Child
	folder *child.Folder
	host   *host
	conn   *grpc.ClientConn
	api    pluginv1.HandlerClient

	ctx    context.Context // of the background work
	cancel context.CancelFunc
	beside sync.WaitGroup

	once   sync.Once
	lost   chan struct{} // closed when the process is not usable any more
	reason string        // label of guests_ended_total; set before lost is closed
	err    error         // the cause; set before lost is closed

	counted int64 // bytes of memory in the metrics
}

// start starts and configures a process. After an error no part of it is left.
func start(ctx context.Context, s *settings) (*process, error) {
	f, err := child.NewFolder()
	if err != nil {
		return nil, err
	}
	p := &process{s: s, folder: f, lost: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if p.host, err = newHost(s, f); err != nil {
		return nil, errors.Join(err, p.end())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Limits.StartTimeout, fmt.Errorf("it is not ready after %v (limits.startTimeout)", s.Limits.StartTimeout))
	defer cancel()
	if err := p.ready(ctx); err != nil {
		return nil, p.withSaid(errors.Join(err, p.end()))
	}
	p.beside.Go(p.watch)
	return p, nil
}

// withSaid adds the end of the plugin's stderr to an error.
func (p *process) withSaid(err error) error {
	if p.child == nil {
		return err
	}
	if said := p.child.Said(); said != "" {
		return fmt.Errorf("%w; it said: %s", err, said)
	}
	return err
}

// ready starts the program, reads its address and configures it.
func (p *process) ready(ctx context.Context) error {
	cfg, err := p.handshake(ctx)
	if err != nil {
		return err
	}
	if err := p.connect(cfg.addr, cfg.ClientConfig); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.beside.Go(func() { // so that the end of the process ends the start
		select {
		case <-p.child.Exited():
			cancel(p.exit())
		case <-ctx.Done():
		}
	})
	return cause(ctx, p.configure(ctx))
}

// cause returns the reason of a failed call. The call may fail a moment before ctx has the reason:
// the end of the plugin or of the time.
func cause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		timer := time.NewTimer(child.DrainTime)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// configure waits until the plugin answers, and sends its configuration.
func (p *process) configure(ctx context.Context) error {
	p.beside.Go(func() { copyStdio(p.ctx, p.conn, p.s.lines) })
	if err := p.check(ctx, grpc.WaitForReady(true)); err != nil {
		return err
	}
	is, err := p.api.Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		return fmt.Errorf("calling Describe: %w", cleanStatus(err))
	}
	p.s.env.Log.Info("plugin started", "plugin", printable.Clean(is.GetName(), 100), "plugin_version", printable.Clean(is.GetVersion(), 100), "pid", p.child.ID())
	if err := p.checkConfig(is.GetConfigSchema()); err != nil {
		return err
	}
	answer, err := p.api.Configure(ctx, &pluginv1.ConfigureRequest{
		Config: p.s.text, Handler: p.s.env.Name, Cluster: p.s.env.Cluster, HostAddress: p.host.address, HostToken: p.host.token,
	})
	if err != nil {
		return fmt.Errorf("calling Configure: %w", cleanStatus(err))
	}
	if text := answer.GetError(); text != "" {
		return fmt.Errorf("config: %s", printable.Text(text, int(p.s.Limits.Message)))
	}
	return nil
}

// checkConfig checks the configuration with the plugin's schema. It ignores an invalid schema,
// which is not a mistake of the user: the plugin checks its configuration in any case.
func (p *process) checkConfig(schema string) error {
	problems, err := checkConfig(schema, p.s.text, p.s.node)
	if errors.Is(err, errSchema) {
		p.s.env.Log.Warn("the plugin's configuration is not checked, because its schema cannot be used", "err", printable.Text(err.Error(), child.TailSize))
		return nil
	}
	return errors.Join(err, problems.Err())
}

// shaken is the result of a handshake.
type shaken struct {
	*plugin.ClientConfig

	addr net.Addr
}

// handshake starts the program and reads its address. It uses only the start of go-plugin's client,
// one client per start: the Kill of the client waits without end for a plugin that hangs, and its
// connection offers services that a handler does not need.
func (p *process) handshake(ctx context.Context) (shaken, error) {
	cmd, err := p.command()
	if err != nil {
		return shaken{}, err
	}
	p.child = child.New(cmd, p.folder.Path, p.s.lines)
	cfg := &plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: pluginv1.CookieKey, MagicCookieValue: pluginv1.CookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{pluginv1.Version: {}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         p.s.TLS,
		SkipHostEnv:      true,
		StartTimeout:     p.s.Limits.StartTimeout + time.Minute, // later than our own timeout
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.folder.Path},
		RunnerFunc: func(_ hclog.Logger, theirs *exec.Cmd, _ string) (runner.Runner, error) {
			cmd.Env = append(cmd.Env, theirs.Env...)
			return p.child, nil
		},
	}
	type result struct {
		addr net.Addr
		err  error
	}
	done := make(chan result, 1)
	go func() {
		addr, err := plugin.NewClient(cfg).Start()
		done <- result{addr, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		err := p.child.Kill(ctx)
		<-done
		return shaken{}, errors.Join(context.Cause(ctx), err)
	}
	switch {
	case r.err != nil && p.child.Silent():
		r.err = p.exit()
	case r.err != nil:
		r.err = errors.New(strings.ReplaceAll(r.err.Error(), "\n", "; "))
	case p.s.TLS && !p.child.Secured():
		r.err = errors.New("the plugin does not speak TLS: set tls: false if it is not written in Go")
	}
	return shaken{cfg, r.addr}, r.err
}

// command returns the command with its arguments, environment and working folder.
func (p *process) command() (*exec.Cmd, error) {
	path, files, err := p.s.program.Prepare(p.folder.Path)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: p.s.Command, Dir: p.folder.Path, ExtraFiles: files, Env: []string{"TMPDIR=" + p.folder.Path}}
	for name, secret := range p.s.Env {
		value, err := secret.Value()
		if err != nil {
			return nil, fmt.Errorf("env.%s: %w", name, err)
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env,
		pluginv1.MaxMessageKey+"="+strconv.Itoa(p.largest()),
		pluginv1.MaxCallsKey+"="+strconv.Itoa(max(p.s.env.Workers, 1)))
	return cmd, nil
}

// largest returns the maximum size of a message to the plugin.
func (p *process) largest() int { return int(p.s.Limits.Input) + overhead }

// connect prepares the connection, which opens at its first use.
func (p *process) connect(addr net.Addr, cfg *plugin.ClientConfig) error {
	identity := insecure.NewCredentials()
	if cfg.TLSConfig != nil {
		identity = credentials.NewTLS(cfg.TLSConfig)
	}
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(identity),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, addr.Network(), addr.String())
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallSendMsgSize(p.largest()), grpc.MaxCallRecvMsgSize(int(p.s.Limits.Output)+overhead)),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), grpc.WithIdleTimeout(0),
	)
	if err != nil {
		return err
	}
	p.conn, p.api = conn, pluginv1.NewHandlerClient(conn)
	return nil
}

// check requests the health of the plugin.
func (p *process) check(ctx context.Context, opts ...grpc.CallOption) error {
	answer, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service}, opts...)
	if err != nil {
		return fmt.Errorf("health: %w", cleanStatus(err))
	}
	if is := answer.GetStatus(); is != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("health: the plugin says %s", is)
	}
	return nil
}

// watch detects the end or bad health of the process.
func (p *process) watch() {
	ticker := time.NewTicker(p.s.Limits.Health)
	defer ticker.Stop()
	defer p.count(0)
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.child.Exited():
			p.lose("exit", p.withSaid(p.exit()))
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(p.ctx, p.s.Limits.Health)
		err := p.check(ctx)
		cancel()
		if err != nil && p.ctx.Err() == nil {
			p.lose("health", err)
		}
		p.measure()
	}
}

// exit returns an error with the exit status of the ended process.
func (p *process) exit() error {
	p.child.Drain()
	if p.child.Err() != nil {
		return fmt.Errorf("the plugin has ended: %w", p.child.Err())
	}
	return errors.New("the plugin has ended")
}

// measure reads the memory of the process.
func (p *process) measure() {
	text, err := os.ReadFile(filepath.Join("/proc", p.child.ID(), "statm"))
	var total, resident int64
	if _, scanned := fmt.Sscan(string(text), &total, &resident); err == nil && scanned == nil {
		p.count(resident * int64(os.Getpagesize()))
	}
}

// count replaces the memory of the process in the metrics. watch alone calls it.
func (p *process) count(bytes int64) {
	p.s.memory.Add(float64(bytes - p.counted))
	p.counted = bytes
}

// lose marks the process as not usable. Only the first call has an effect.
func (p *process) lose(reason string, err error) {
	p.once.Do(func() {
		p.reason, p.err = reason, err
		close(p.lost)
	})
}

// gone reports whether the process is not usable any more.
func (p *process) gone() bool {
	select {
	case <-p.lost:
		return true
	default:
		return false
	}
}

// stop asks the process to end, and kills it after the timeout.
func (p *process) stop() error {
	p.child.Stop()
	timer := time.NewTimer(p.s.Limits.StopTimeout)
	defer timer.Stop()
	select {
	case <-p.child.Exited():
	case <-timer.C:
		p.s.env.Log.Warn("plugin did not stop in time; it is killed", "after", p.s.Limits.StopTimeout)
	}
	return p.end()
}

// end kills the process and removes its folder.
func (p *process) end() (err error) {
	p.lose("stop", context.Canceled)
	p.cancel()
	if p.child != nil {
		err = p.child.Kill(p.ctx)
	}
	if p.conn != nil {
		_ = p.conn.Close()
	}
	if p.host != nil {
		p.host.close()
	}
	p.beside.Wait()
	return errors.Join(err, p.folder.Remove())
}

// cleanStatus makes an error of the plugin safe to quote.
func cleanStatus(err error) error {
	if s, ok := status.FromError(err); ok {
		return &statusError{err, s.Code().String() + ": " + printable.Text(s.Message(), child.TailSize)}
	}
	return err
}

// statusError is an error of gRPC with a message of limited length.
type statusError struct {
	err  error
	text string
}

func (e *statusError) Error() string { return e.text }
func (e *statusError) Unwrap() error { return e.err }
