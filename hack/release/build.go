package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// platform is a target of the compiler.
type platform struct{ os, arch string }

// String returns the form of -platforms.
func (p platform) String() string { return p.os + "/" + p.arch }

func parsePlatforms(list string) (parsed []platform, err error) {
	for word := range strings.SplitSeq(list, ",") {
		system, arch, ok := strings.Cut(word, "/")
		if !ok || system == "" || arch == "" {
			return nil, fmt.Errorf("-platforms: %q is not OS/ARCHITECTURE, as in linux/amd64", word)
		}
		parsed = append(parsed, platform{system, arch})
	}
	return parsed, nil
}

// source is the checkout that the artifacts are built from.
type source struct {
	root     string
	version  string
	revision string    // the commit; empty outside of a git repository
	time     time.Time // of the commit, or of $SOURCE_DATE_EPOCH
}

// inspect finds out the version, the commit and the time of a checkout.
func inspect(ctx context.Context, o options) (source, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return source{}, err
	}
	s := source{root: root, version: o.version}
	s.revision, err = git(ctx, root, "rev-parse", "HEAD")
	inRepository := err == nil
	if s.version == "" {
		if s.version, err = git(ctx, root, "describe", "--always", "--dirty"); err != nil {
			return source{}, fmt.Errorf("the version of %s is unknown: %w: name it with -version", root, err)
		}
	}
	epoch, set := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !set || epoch == "" {
		if !inRepository {
			return source{}, fmt.Errorf("%s is no git repository: set SOURCE_DATE_EPOCH to the time of the artifacts, in seconds since 1970", root)
		}
		if epoch, err = git(ctx, root, "log", "-1", "--format=%ct"); err != nil {
			return source{}, err
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds since 1970", epoch)
	}
	s.time = time.Unix(seconds, 0).UTC()
	return s, nil
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w%s", strings.Join(args, " "), err, said(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// said returns the standard error of a program that failed.
func said(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}

// build compiles the router for one platform into a file. The settings that could change its bytes
// are fixed here, whatever the environment says.
func (s source) build(ctx context.Context, p platform, file string) error {
	vcs := "-buildvcs=true"
	if s.revision == "" {
		vcs = "-buildvcs=false"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", vcs, "-ldflags", "-s -w -X main.version="+s.version, "-o", file, "./cmd/router")
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	if _, err := cmd.Output(); err != nil {
		return fmt.Errorf("building the router for %s: %w%s", p, err, said(err))
	}
	return nil
}
