// SPDX-License-Identifier: Apache-2.0

//go:build race

package ipam

func init() { interleaveEvery = 17 }
