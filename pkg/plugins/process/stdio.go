package process

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/deltarouter/deltarouter/internal/lines"
)

// The stream over which go-plugin's server sends the output of a plugin in Go. Its messages are
// internal to go-plugin, so they are parsed here. They contain a channel (1: stdout, 2: stderr) and
// bytes.
const (
	stdioMethod  = "/plugin.GRPCStdio/StreamStdio"
	stdioChannel = protowire.Number(1)
	stdioData    = protowire.Number(2)
	stdioStderr  = 2
)

// copyStdio logs the output of the plugin until the process ends. A plugin in another language has
// no such stream and writes to the real stdout and stderr.
func copyStdio(ctx context.Context, conn *grpc.ClientConn, l *lines.Log) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, stdioMethod, grpc.ForceCodecV2(rawCodec{}), grpc.WaitForReady(true))
	if err != nil {
		return
	}
	if stream.SendMsg(&[]byte{}) != nil || stream.CloseSend() != nil {
		return
	}
	stdout, stderr := l.Writer(ctx, "stdout", slog.LevelInfo), l.Writer(ctx, "stderr", slog.LevelWarn)
	for {
		var message []byte
		if stream.RecvMsg(&message) != nil {
			stdout.Flush()
			stderr.Flush()
			return
		}
		channel, data := parseStdio(message)
		to := stdout
		if channel == stdioStderr {
			to = stderr
		}
		_, _ = to.Write(data)
	}
}

// parseStdio parses a message. It ignores unknown fields.
func parseStdio(message []byte) (channel uint64, data []byte) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return channel, data
		}
		message = message[n:]
		switch {
		case number == stdioChannel && kind == protowire.VarintType:
			channel, n = protowire.ConsumeVarint(message)
		case number == stdioData && kind == protowire.BytesType:
			data, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return channel, data
		}
		message = message[n:]
	}
	return channel, data
}

// rawCodec does not encode messages.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil //nolint:forcetypeassert // only copyStdio uses it
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize() //nolint:forcetypeassert // only copyStdio uses it
	return nil
}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "proto" }
