"""The workflows, personas, schemas and model prices that come with holdfast, and how a user's own come before them."""

from holdfast.catalog.lookup import PACKAGE_DIR, Catalog, CatalogEntry, CatalogRoot, Source
from holdfast.catalog.model_table import ModelCard, ModelTable, Prices, load_model_table
from holdfast.catalog.trust import Demands, check_trust, find_demands, list_used, trust_of

__all__ = [
    "PACKAGE_DIR",
    "Catalog",
    "CatalogEntry",
    "CatalogRoot",
    "Demands",
    "Source",
    "ModelCard",
    "ModelTable",
    "Prices",
    "check_trust",
    "find_demands",
    "list_used",
    "trust_of",
    "load_model_table",
]
