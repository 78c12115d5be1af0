package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/meter"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/host"
)

// compilers is the number of functions that are compiled at the same time.
const compilers = 2

// compile meters and compiles the module, or loads it from the cache, because the compilation of a
// Go program takes a second or two.
func (e *Engine) compile(ctx context.Context) error {
	metered, err := e.meter()
	if err != nil {
		return fmt.Errorf("it cannot be compiled: %w", err)
	}
	if e.profiler != nil {
		e.profiler.functions = metered.Functions
	}
	if err := e.Protocol.CheckImports(e.Host, metered.Imports); err != nil {
		return err
	}
	own := *metered
	e.metered = &own
	defer func() { // the compiled code replaces them
		e.Module, e.metered.Code, e.metered.Imports = nil, nil, nil
	}()
	if e.Env.Cache != "" {
		err := e.compileWith(ctx, codeCache{filepath.Join(e.Env.Cache, "wasm")})
		if err == nil || ctx.Err() != nil {
			return err
		}
		e.Env.Log.Debug("compiling once more, without the cache", "err", err)
	}
	return e.compileWith(ctx, codeCache{})
}

// meter returns the metered module.
func (e *Engine) meter() (*meter.Module, error) {
	rewrite := func() (*meter.Module, error) {
		return meter.Rewrite(e.Module, meter.Config{Init: math.MaxInt64 / 2, Slice: host.MaxSlice, Stack: e.Protocol.Stack()})
	}
	if e.Shared == nil {
		return rewrite()
	}
	e.Shared.once.Do(func() { e.Shared.metered, e.Shared.err = rewrite() })
	return e.Shared.metered, e.Shared.err
}

// Shared has the metered and the compiled code of a module that several engines of a process use.
// The compiled code is not here if [plugins.Env].Cache keeps it on disk. Both stay in memory until
// the process ends. It is safe for concurrent use.
type Shared struct {
	code    wazero.CompilationCache
	once    sync.Once
	metered *meter.Module
	err     error
}

// NewShared returns a Shared without results.
func NewShared() *Shared { return &Shared{code: wazero.NewCompilationCache()} }

func (e *Engine) compileWith(ctx context.Context, c codeCache) error {
	conf := wazero.NewRuntimeConfig().WithMemoryLimitPages(uint32(uint64(e.Limits.Memory) / abi.PageSize))
	e.closeCode = nil
	dir, kept, err := c.open(e.metered.Code)
	if err != nil {
		e.Env.Log.Warn("compiled modules cannot be kept, so each start compiles them", "err", fileerr.Explain(err))
	}
	switch {
	case dir != "":
		cache, err := wazero.NewCompilationCacheWithDir(dir)
		if err != nil {
			return err
		}
		conf, e.closeCode = conf.WithCompilationCache(cache), cache.Close
	case e.Shared != nil:
		conf = conf.WithCompilationCache(e.Shared.code)
	case e.profiler == nil: // else the code has its calls
		var cache wazero.CompilationCache
		cache, kept, e.closeCode = process().use(e.metered.Code)
		conf = conf.WithCompilationCache(cache)
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, conf)
	began := time.Now()
	slow := !kept && len(e.metered.Code) >= slowCode
	if slow { // a reload is silent meanwhile
		e.Env.Log.Info("compiling the module, which may take seconds", "bytes", len(e.metered.Code))
	}
	// before the cache is sealed, because the cache contains this code too
	if e.pauses, err = host.ProvidePauses(ctx, e.runtime); err == nil {
		// With workers wazero checks ctx after each function, and package meter limits the size of
		// a function.
		e.compiled, err = e.runtime.CompileModule(experimental.WithCompilationWorkers(ctx, compilers), e.metered.Code)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("it cannot be compiled: %w", err), e.Close(ctx))
		c.remove(dir)
		return err
	}
	if slow {
		e.Env.Log.Info("compiled the module", "took", time.Since(began))
	}
	if err := c.seal(dir); err != nil {
		e.Env.Log.Warn("the compiled module cannot be kept, so the next start compiles it again", "err", fileerr.Explain(err))
	}
	return nil
}

// process has the code of all open modules of this process that is not on disk. Each include has
// instances of its own of the handlers that it is granted: without state.dir, the router would
// compile their modules again for each of twenty teams.
var process = sync.OnceValue(func() *openCode { return &openCode{of: make(map[[sha256.Size]byte]*users)} })

// openCode has the compiled code of open modules by the hashes of the modules.
type openCode struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]*users
}

// users are the engines that use one code.
type users struct {
	cache wazero.CompilationCache
	n     int
}

// use returns the cache for the code of a module, and whether another engine uses it already. The
// last of the returned functions to be called frees the code; an engine calls its own once.
func (o *openCode) use(module []byte) (cache wazero.CompilationCache, used bool, end func(context.Context) error) {
	hash := sha256.Sum256(module)
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.of[hash]
	if used = u != nil; !used {
		u = &users{cache: wazero.NewCompilationCache()}
		o.of[hash] = u
	}
	u.n++
	return u.cache, used, func(ctx context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if u.n--; u.n > 0 {
			return nil
		}
		delete(o.of, hash)
		return u.cache.Close(ctx)
	}
}

// slowCode is the size of a module whose compilation is logged: about half a second.
const slowCode = 512 << 10

// codeCache is a folder of compiled modules. It contains a folder per module, named by the module's
// hash, with the file of wazero, and a file with the hash of that. The hash is necessary because
// the file is machine code, and wazero detects only some damage. The zero codeCache stores nothing.
type codeCache struct{ dir string }

const (
	sealFile = "sha256"
	keepCode = 30 * 24 * time.Hour // entries that were unused for so long are removed
)

// open returns the folder of a module, or an empty path. The content of the folder is intact. kept:
// it has the compiled module.
func (c codeCache) open(module []byte) (dir string, kept bool, err error) {
	if c.dir == "" {
		return "", false, nil
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return "", false, err
	}
	if err := os.Chmod(c.dir, 0o700); err != nil { // its content is executed
		return "", false, err
	}
	c.prune(time.Now())
	hash := sha256.Sum256(module)
	dir = filepath.Join(c.dir, hex.EncodeToString(hash[:16]))
	sum, err := sumOf(dir)
	sealed, sealErr := os.ReadFile(filepath.Join(dir, sealFile))
	if kept = err == nil && sealErr == nil && sum == string(sealed); !kept {
		c.remove(dir)
	}
	return dir, kept, os.MkdirAll(dir, 0o700)
}

// seal writes the hash of a folder after the module was compiled or loaded.
func (c codeCache) seal(dir string) error {
	if dir == "" {
		return nil
	}
	sum, err := sumOf(dir)
	if err != nil {
		return err
	}
	seal := filepath.Join(dir, sealFile)
	if err := os.WriteFile(seal, []byte(sum), 0o600); err != nil {
		return err
	}
	now := time.Now()
	return os.Chtimes(seal, now, now)
}

func (c codeCache) remove(dir string) {
	if dir != "" {
		_ = os.RemoveAll(dir) // if that fails, its hash does not match
	}
}

// prune removes modules that were not used for a long time.
func (c codeCache) prune(now time.Time) {
	seals, err := filepath.Glob(filepath.Join(c.dir, "*", sealFile))
	if err != nil {
		return
	}
	for _, seal := range seals {
		if info, err := os.Stat(seal); err == nil && now.Sub(info.ModTime()) > keepCode {
			c.remove(filepath.Dir(seal))
		}
	}
}

// sumOf returns the hash of all files in a folder, including their names, without the hash file.
func sumOf(dir string) (string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != sealFile {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	sum := sha256.New()
	for _, name := range names {
		if err := addFile(sum, name); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func addFile(sum io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(sum, "%s\n", filepath.Base(name))
	_, err = io.Copy(sum, f)
	return err
}
