"""holdfast"""
