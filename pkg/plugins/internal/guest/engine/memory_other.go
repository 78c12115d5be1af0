//go:build !unix

package engine

import "github.com/tetratelabs/wazero/experimental"

func allocateMemory(_, _ uint64) experimental.LinearMemory { return &heapMemory{} }
